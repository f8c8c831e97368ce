"""JAX's spellings of indexing, padding and rolling are read as static ops that compute the same."""

import numpy as np
import pytest
from tests.slowness import some

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

from eggshard.frontends import load  # noqa: E402
from eggshard.ops.evaluate import evaluate_program  # noqa: E402

N = 12
X = np.arange(N * 8, dtype=np.float32).reshape(N, 8)
X[3, 4], X[0, 0], X[-1, 2] = np.nan, -0.0, np.inf
V = -np.arange((N - 2) * 6, dtype=np.float32).reshape(N - 2, 6)
cat = jnp.concatenate
index = np.array

def insulated(w):
    w = w.at[0].set(w[1]).at[-1].set(w[-2])
    return w.at[:, 0].set(w[:, 1]).at[:, -1].set(w[:, -2])


#: Function of (X, V), and the ops that it is read as, but for constants, reshapes and broadcasts.
PROGRAMS = {
    # updates at constants
    "interior set": (lambda u, v: u.at[1:-1, 1:-1].set(v), "update_slice"),
    "interior add": (lambda u, v: u.at[1:-1, 1:-1].add(v), "slice add update_slice"),
    "interior multiply": (lambda u, v: u.at[1:-1, 1:-1].multiply(v), "slice multiply update_slice"),
    "interior max": (lambda u, v: u.at[1:-1, 1:-1].max(v), "slice maximum update_slice"),
    "rows": (lambda u, v: u.at[0].set(0.0).at[-1].set(u[-2]), "update_slice slice update_slice"),
    "column": (lambda u, v: u.at[:, -1].set(u[:, 2]), "slice update_slice"),
    "one element": (lambda u, v: u.at[3, 4].set(7.0), "update_slice"),
    "row of a column": (lambda u, v: u.at[2:5, 1].set(1.0), "update_slice"),
    "reversed": (lambda u, v: u.at[::-1].set(u), "reverse"),
    "everything": (lambda u, v: u.at[:].set(2 * u), "multiply"),
    "strided": (lambda u, v: u.at[::2].set(0.0), "pad pad select"),
    "strided in both": (lambda u, v: u.at[1::2, ::3].set(u[::2, ::3]), "slice pad pad select"),
    "strided add": (lambda u, v: u.at[1::2, ::3].add(u[::2, ::3]), "slice slice add pad pad select"),
    "outside": (lambda u, v: u.at[50].set(1.0), ""),
    "batched": (lambda u, v: jax.vmap(lambda r: r.at[1:3].set(0.0))(u), "update_slice"),
    "dynamic update": (lambda u, v: lax.dynamic_update_slice(u, v, (9, 1)), "update_slice"),
    # reads at constants
    "take": (lambda u, v: jnp.take(u, index([2, 3, 4]), axis=0), "slice"),
    "take, strided": (lambda u, v: u[:, index([0, 3, 6])], "slice"),
    "take, backwards": (lambda u, v: u[:, index([6, 4, 2])], "slice reverse"),
    "take, clipped": (lambda u, v: jnp.take(u, index([2, 3, 40]), axis=0, mode="clip"), "slice slice concatenate"),
    "take one": (lambda u, v: u[3, index([1, 2])], "slice"),
    "take a grid": (lambda u, v: u[np.ix_(index([2, 3, 4]), index([7, 6]))], "slice reverse"),
    "take a transposed grid": (lambda u, v: u[index([[1], [2], [3]]), index([[4, 5]])].T, "slice transpose"),
    "take rolled": (lambda u, v: u[(jnp.arange(N) + 5) % N], "rotate"),
    "take clamped": (lambda u, v: u[jnp.clip(jnp.arange(-2, N + 1), 0, N - 1)], "extend"),
    "take mirrored": (lambda u, v: u[np.r_[2, 1, 0:N, N - 2]], "extend"),
    "dynamic slice": (lambda u, v: lax.dynamic_slice(u, (11, 5), (3, 2)), "slice"),
    "dynamic index": (lambda u, v: lax.dynamic_index_in_dim(u, -1), "slice"),
    # rotations
    "roll": (lambda u, v: jnp.roll(u, 1, 0), "rotate"),
    "roll in both": (lambda u, v: jnp.roll(u, (1, -2), (0, 1)), "rotate rotate"),
    "roll twice": (lambda u, v: jnp.roll(jnp.roll(u, 1, 0), -3, 0), "rotate"),
    "roll there and back": (lambda u, v: jnp.roll(jnp.roll(u, 1, 0), -1, 0), ""),
    # periodic and edge padding by hand
    "periodic": (lambda u, v: cat([u[-1:], u, u[:1]]), "wrap"),
    "periodic part": (lambda u, v: cat([u[-2:-1], u[1:-1], u[1:2]]), "slice wrap"),
    "edge of a part": (lambda u, v: cat([u[1:2], u[1:-1], u[-2:-1]]), "slice extend"),
    "shift down": (lambda u, v: cat([u[:1], u[:-1]]), "slice extend"),
    "shift up": (lambda u, v: cat([u[1:], u[-1:]]), "slice extend"),
    "edge beside zeros": (lambda u, v: cat([jnp.zeros((1, 8)), u, u[-1:]]), "extend concatenate"),
    "two boundaries": (lambda u, v: cat([u[1:3][::-1], u, u[-1:]]), "extend extend"),
    # boundary conditions
    "insulated": (lambda u, v: u.at[0].set(u[1]).at[-1].set(u[-2]), "slice extend"),
    "insulated on one side": (lambda u, v: u.at[:, -1].set(u[:, -2]), "slice extend"),
    "mirrored": (lambda u, v: u.at[0].set(u[2]).at[-1].set(u[-3]), "slice extend"),
    "periodic cells": (lambda u, v: u.at[0].set(u[-2]).at[-1].set(u[1]), "slice wrap"),
    "periodic column": (lambda u, v: u.at[:, -1].set(u[:, 0]), "slice wrap"),
    "of a new interior": (lambda u, v: insulated(u.at[1:-1, 1:-1].set(v)), "update_slice slice extend slice extend"),
    "with unit dimensions": (lambda u, v: cat([u[0][None], u, u[-1][None]]), "extend"),
    # left as they are
    "diagonal": (lambda u, v: u[index([2, 3]), index([2, 3])], "gather"),
    "permuted": (lambda u, v: u[index([5, 1, 9, 2, 7, 0])], "gather"),
    "twice": (lambda u, v: cat([u, u]), "concatenate"),
    "interleaved": (lambda u, v: cat([u[::2], u[1::2]]), "slice slice concatenate"),
    "frame": (lambda u, v: cat([u[:1], -u[1:-1], u[-1:]]), "slice slice negate slice concatenate"),
}


def names(program):
    return [op.name for op in program.region.ops if op.name not in ("constant", "reshape", "broadcast_in_dim")]


def check(function, *arrays):
    program = load(jax.jit(function, keep_unused=True).lower(*arrays))
    (got,) = evaluate_program(program, arrays)
    np.testing.assert_array_equal(got, np.asarray(function(*map(jnp.asarray, arrays))))
    return program


@pytest.mark.parametrize("name", some(PROGRAMS, 26))
def test_static_form(name):
    function, expected = PROGRAMS[name]
    found = names(check(function, X, V))
    if expected == "gather":  # and the arithmetic on its indices
        assert "gather" in found
    else:
        assert found == expected.split()


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric", "wrap"])
@pytest.mark.parametrize("widths", some([1, 2, 3, ((2, 1), (0, 3)), ((0, 1), (3, 0))], 3))
def test_pad(mode, widths):
    found = names(check(lambda u: jnp.pad(u, widths, mode=mode), X))
    assert found == ["wrap" if mode == "wrap" else "extend"] * 2
    flat = (3 if isinstance(widths, tuple) else widths, 1)
    assert len(names(check(lambda u: jnp.pad(u, flat, mode=mode), X[:, 0]))) == 1


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric", "wrap"])
def test_pad_by_more_than_half_stays_a_concatenation(mode):
    assert "concatenate" in names(check(lambda u: jnp.pad(u, (10, 11), mode=mode), X[:, 0]))


def test_a_dynamic_roll_is_left_alone():
    found = names(load(jax.jit(lambda u, k: jnp.roll(u, k, 0)).lower(X, np.int32(3))))
    assert "dynamic_slice" in found


def test_bodies_of_loops_are_read_so_too():
    def steps(u):
        return lax.fori_loop(0, 3, lambda _, w: w.at[1:-1].set(jnp.roll(w, 1, 0)[1:-1]), u)

    (loop,) = [op for op in load(jax.jit(steps).lower(X)).region.ops if op.name == "while"]
    assert {"rotate", "update_slice"} <= {op.name for op in loop.regions[1].ops}


def test_integer_constants_are_found_through_arithmetic_only():
    def data(u, i):
        return u[i + jnp.arange(3)]

    assert "gather" in names(load(jax.jit(data).lower(X, np.int32(1))))


@pytest.mark.parametrize("monoid", ["add", "multiply", "min", "max"])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_updates_combine_as_scatter_does(monoid, dtype):
    u, v = np.arange(16, dtype=dtype), -np.arange(5, dtype=dtype)
    assert names(check(lambda a, b: getattr(a.at[3:8], monoid)(b), u, v))[-1] == "update_slice"
    assert names(check(lambda a, b: getattr(a.at[1:16:3], monoid)(b), u, v))[-1] == "select"


def test_shardings_stay_on_the_value():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    text = jax.jit(lambda u: jnp.roll(u, 1, 0), in_shardings=sharding, out_shardings=sharding).lower(X).as_text()
    stated = text.replace("dim = 0 :", 'dim = 0 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>} :')
    (op,) = load(stated).region.ops
    assert op.name == "rotate" and str(op.shardings[0]) == '[{"x"}, {}]'


def test_slices_at_a_place_that_differs_between_devices_are_read():
    text = """module {
      sdy.mesh @mesh = <["x"=4]>
      func.func @main(%a: tensor<4xf32>) -> (tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) {
        %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{}]>] out_shardings=[<@mesh, [{"x"}]>]
            manual_axes={"x"} (%b: tensor<4xf32>) {
          %1 = stablehlo.partition_id : tensor<ui32>
          %2 = stablehlo.dynamic_slice %b, %1, sizes = [1] : (tensor<4xf32>, tensor<ui32>) -> tensor<1xf32>
          sdy.return %2 : tensor<1xf32>
        } : (tensor<4xf32>) -> tensor<4xf32>
        return %0 : tensor<4xf32>
      }
    }"""
    values = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(evaluate_program(load(text), [values])[0], values)
