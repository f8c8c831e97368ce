"""Manual computations over some mesh axes: planned along the others, and run alike along the manual ones."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
from tests.slowness import some

import eggshard as es
from eggshard.costmodel import WireBytes
from eggshard.engines.jax.verification import compare
from eggshard.errors import ProgramError
from eggshard.steps.control_steps import Branch


def mesh(shape: tuple[int, ...] = (2, 4), names: tuple[str, ...] = ("data", "model")) -> Mesh:
    return jax.make_mesh(shape, names, axis_types=(AxisType.Auto,) * len(shape))


M = mesh()
CUBE = mesh((2, 2, 2), ("a", "b", "c"))


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


def check(function: Any, given: list[np.ndarray], specs: list[P], out: Any = None, where: Mesh = M,
          model: Any = None) -> es.Plan:
    """The plan, after runs of it, of its baseline and of its copy from JSON were compared with the jitted original."""
    named = [NamedSharding(where, s) for s in specs]
    outs = {} if out is None else {"out_shardings": jax.tree.map(lambda s: NamedSharding(where, s), out)}
    with jax.set_mesh(where):
        jitted = jax.jit(function, in_shardings=named, **outs)
        plan = es.optimize(jitted.lower(*given), cost_model=model or WireBytes())
        want = [np.asarray(v) for v in jax.tree.leaves(jitted(*map(jax.device_put, given, named)))]
    assert not plan.search.fallback or plan.search.fallback.startswith("the search found nothing")
    for planned in (plan, plan.baseline, es.Plan.from_json(plan.to_json())):
        compare("numpy", planned.run(*given), want, plan.program.output_types)
    compare("jax", [np.asarray(v) for v in jax.tree.leaves(plan.to_jax()(*given))], want, plan.program.output_types)
    assert plan.verify(engines=("numpy",)).differences
    return plan


def over(axes: set[str], body: Any, ins: Any, outs: Any, where: Mesh | None = None) -> Any:
    given = {} if where is None else {"mesh": where}
    return jax.shard_map(body, in_specs=ins, out_specs=outs, axis_names=axes, check_vma=False, **given)


def tensor_parallel(x: Any, w: Any, v: Any) -> Any:
    body = lambda x, w, v: lax.psum(jax.nn.relu(x @ w) @ v, "model")  # noqa: E731
    return over({"model"}, body, (P(), P(None, "model"), P("model")), P())(x, w, v)


TENSOR_PARALLEL = (arrays((8, 16), (16, 32), (32, 16)), [P("data"), P(None, "model"), P("model")])


def test_tensor_parallel_layer_keeps_its_batch_sharded() -> None:
    plan = check(tensor_parallel, *TENSOR_PARALLEL, P("data"))
    assert plan.collectives == {"all-reduce": 1}
    assert plan.wire_bytes == 2 * 3 / 4 * (8 // 2) * 16 * 4  # the ring over model, of the batch's shard
    assert set(plan.verify().differences) == {"numpy", "jax"}


def test_bodies_are_planned_at_few_placements_so_the_gap_is_unknown() -> None:
    plan = check(tensor_parallel, *TENSOR_PARALLEL, P("data"))
    assert plan.gap is None and "manual computations on values placed otherwise" in plan.certificate
    given, specs = TENSOR_PARALLEL
    wholly = lambda *a: over({"data", "model"}, lambda x, w, v: lax.psum(jax.nn.relu(x @ w) @ v, "model"),  # noqa: E731
                             tuple(specs), P("data"))(*a)
    whole = check(wholly, given, specs, P("data"))
    assert whole.gap is None and "manual computations otherwise than they are written" in whole.certificate


def test_gradient_of_a_tensor_parallel_layer() -> None:
    given, specs = TENSOR_PARALLEL
    gradient = jax.grad(lambda *a: (tensor_parallel(*a) ** 2).sum(), argnums=(0, 1, 2))
    check(gradient, given, specs, (P("data"), P(None, "model"), P("model")))


def test_layers_in_a_scan_keep_their_batch_sharded() -> None:
    def body(x: Any, w: Any, v: Any) -> Any:
        layer = lambda h, m: (lax.psum(jnp.tanh(h @ m[0]) @ m[1], "model"), None)  # noqa: E731
        return lax.scan(layer, x, (w, v))[0]

    specs = (P(), P(None, None, "model"), P(None, "model"))
    given = arrays((8, 16), (3, 16, 32), (3, 32, 16))
    plan = check(over({"model"}, body, specs, P()), given, [P("data"), *specs[1:]], P("data"))
    assert plan.collectives == {"all-reduce": 3}
    assert plan.wire_bytes == 3 * 2 * 3 / 4 * (8 // 2) * 16 * 4


def test_nothing_is_added_to_a_branch_of_each_device() -> None:
    """Collectives in it would wait for devices that take the other one."""
    def body(v: Any) -> Any:
        return lax.cond(lax.axis_index("model") > 1, lambda a: jnp.sin(a) * a.sum(0), lambda a: a @ (a.T @ a), v)

    plan = es.optimize(jax.jit(over({"model"}, body, P(None, "model"), P(None, "model"), M)).lower(*arrays((8, 16))))
    (branch,) = [s.action for s in plan.steps if isinstance(s.action, Branch)]
    assert not branch.messages


RING = [(k, (k + 1) % 4) for k in range(4)]
BODIES: dict[str, Any] = {
    "psum": lambda a: a + lax.psum(a, "model"),
    "pmax": lambda a: a - lax.pmax(a, "model"),
    "all_gather": lambda a: lax.all_gather(a, "model", axis=1, tiled=True)[:, 3:7] + a,
    "all_gather in a new dimension": lambda a: lax.all_gather(a, "model").sum(0),
    "psum_scatter": lambda a: lax.psum_scatter(jnp.tile(a, (1, 4)), "model", scatter_dimension=1, tiled=True),
    "all_to_all": lambda a: lax.all_to_all(lax.all_to_all(a, "model", 0, 1, tiled=True) * 2, "model", 1, 0, tiled=True),
    "all_to_all in one dimension": lambda a: lax.all_to_all(a, "model", 1, 1, tiled=True),
    "ring": lambda a: a + lax.ppermute(a, "model", RING),
    "partial permute": lambda a: lax.ppermute(a, "model", [(0, 2), (1, 3)]),
    "axis index": lambda a: a * lax.axis_index("model"),
    "each device's slice": lambda a: lax.dynamic_slice_in_dim(jnp.sin(a), lax.axis_index("model"), 1, 1) + a,
    "free axes contracted": lambda a: lax.psum(jnp.tanh(a @ (a.T @ a)), "model"),
    "sum along the free axis": lambda a: a - lax.psum(a.sum(0), "model"),
    "uneven along the free axis": lambda a: jnp.concatenate([lax.pmax(jnp.sin(a[:7]), "model"), a[:1]]),
    "not a number": lambda a: lax.psum(jnp.log(a), "model") + lax.ppermute(jnp.sqrt(a), "model", RING),
    "constraint": lambda a: lax.with_sharding_constraint(jnp.sin(a), P(None, "data")) + lax.psum(a, "model"),
    "scan": lambda a: lax.scan(lambda c, _: (jnp.sin(c) + lax.pmean(c, "model"), c.sum()), a, None, length=3)[0],
    "while of each device": lambda a: lax.while_loop(
        lambda c: c[0] < lax.axis_index("model"), lambda c: (c[0] + 1, c[1] * (1 + c[1].sum(0))), (0, a))[1],
    "branch of each device": lambda a: lax.cond(
        lax.axis_index("model") > 1, lambda a: jnp.sin(a) * a.sum(0), lambda a: a @ (a.T @ a), a),
    "nothing": lambda a: a,
}


@pytest.mark.parametrize("name", some(BODIES, 10))
def test_bodies(name: str) -> None:
    function = lambda x: over({"model"}, BODIES[name], P(None, "model"), P(None, "model"))(x * 2) + 1  # noqa: E731
    check(function, arrays((8, 16)), [P("data", "model")], P("data", "model"))


def test_pipeline_of_stages() -> None:
    """Microbatches pass from stage to stage; layers are sharded along the axis that is left to the compiler."""
    m = mesh((4, 2), ("stage", "model"))

    def body(w: Any, x: Any) -> Any:
        stage = lax.axis_index("stage")

        def tick(carry: Any, t: Any) -> Any:
            state, out = carry
            state = jnp.where(stage == 0, x[jnp.minimum(t, 3)], state)
            state = jnp.tanh(state @ w[0])
            done = (stage == 3) & (t >= 3)
            out = out.at[jnp.maximum(t - 3, 0)].set(jnp.where(done, state, out[jnp.maximum(t - 3, 0)]))
            return (lax.ppermute(state, "stage", [(i, (i + 1) % 4) for i in range(4)]), out), None

        start = (jnp.zeros_like(x[0]), jnp.zeros_like(x))
        return lax.psum(jnp.where(stage == 3, lax.scan(tick, start, jnp.arange(7))[0][1], 0), "stage")

    function = over({"stage"}, body, (P("stage"), P()), P())
    given = arrays((4, 8, 8), (4, 2, 8))
    check(function, given, [P("stage", None, "model"), P(None, None, "model")], P(None, None, "model"), m)


def test_nested() -> None:
    def inner(v: Any) -> Any:
        return lax.psum(v, "b") * lax.axis_index("b") + lax.pmax(v, "a") + lax.axis_index("a")

    def body(v: Any) -> Any:
        return over({"b"}, inner, P("b"), P("b"))(jnp.sin(v)) @ (v.T @ v) + lax.psum(v, "a")

    function = over({"a"}, body, P(None, "a"), P(None, "a"))
    check(function, arrays((8, 8)), [P(("b", "c"), "a")], P("c", "a"), CUBE)


def test_manual_and_free_axes_in_one_dimension() -> None:
    function = lambda x: over({"b"}, lambda v: jnp.cos(v) + v.sum() + lax.axis_index("b"), P("b"), P("b"))(x)  # noqa: E731
    check(function, arrays((16, 4)), [P(("b", "a"))], P(("b", "a")), CUBE)
    check(function, arrays((16, 4)), [P(("a", "b"), "c")], P(("c", "a", "b")), CUBE)


def test_several_axes_and_devices_in_another_order() -> None:
    m = Mesh(np.array(jax.devices()[:8])[[3, 1, 0, 2, 7, 5, 6, 4]].reshape(2, 2, 2), ("a", "b", "c"))

    def body(v: Any) -> Any:
        return lax.all_gather(v, ("c", "a"), axis=1, tiled=True)[:, :2] @ v.T @ v + lax.axis_index(("a", "c"))

    check(over({"a", "c"}, body, P(None, ("c", "a")), P(None, ("c", "a"))), arrays((8, 8)), [P("b", "c")], P("b"), m)


HEAD = """sdy.mesh @mesh = <["x"=2, "y"=4]>
func.func @main(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %r = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"y"}, {}]>] out_shardings=[<@mesh, [{"y"}, {}]>]
    manual_axes={"y"} (%b: tensor<2x8xf32>) {
"""
TAIL = """    sdy.return %c : tensor<2x8xf32>
  } : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %r : tensor<8x8xf32>
}"""
ALONG_Y = "[[0, 1, 2, 3], [4, 5, 6, 7]]"


def all_reduce(
    groups: str, operand: str = "%b", type_: str = "tensor<2x8xf32>", ids: str = ", use_global_device_ids"
) -> str:
    size = f"{groups.count('], [') + 1}x{groups.split(']')[0].count(',') + 1}"
    return f"""%c = "stablehlo.all_reduce"({operand}) <{{replica_groups = dense<{groups}> : tensor<{size}xi64>{ids},
      channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>}}> ({{
      ^bb0(%p: tensor<f32>, %q: tensor<f32>):
        %s = stablehlo.add %p, %q : tensor<f32>
        stablehlo.return %s : tensor<f32>
      }}) : ({type_}) -> {type_}
    """


REFUSED = {
    "groups across the free axis": (
        all_reduce("[[0, 4], [1, 5], [2, 6], [3, 7]]"),
        r"all_reduce\(tensor<2x8xf32>\): its group .* crosses axes \{x\}.*manual axes"),
    "other groups elsewhere": (all_reduce("[[0, 1], [2, 3], [4, 6], [5, 7]]"), r"differ from place to place.*\{x\}"),
    "groups of replicas": (all_reduce(ALONG_Y, ids=""), "groups are of replicas"),
    "pairs across the free axis": (
        """%c = "stablehlo.collective_permute"(%b) <{source_target_pairs = dense<[[0, 4]]> : tensor<1x2xi64>,
          channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>}> : (tensor<2x8xf32>) -> tensor<2x8xf32>
        """, r"crosses axes \{x\}"),
    "a device's number": (
        """%n = stablehlo.partition_id : tensor<ui32>
        %f = stablehlo.convert %n : (tensor<ui32>) -> tensor<f32>
        %c = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> tensor<2x8xf32>
        """, r"partition_id.*number differs along axes \{x\}|number differs along axes \{x\}"),
    "effects": (
        """stablehlo.custom_call @print(%b) {has_side_effect = true} : (tensor<2x8xf32>) -> ()
        %c = stablehlo.add %b, %b : tensor<2x8xf32>
        """, r"has effects, and axes \{x\}"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    body, message = REFUSED[name]
    with pytest.raises(ProgramError, match=message):
        es.optimize(HEAD + body + TAIL)


def test_collectives_outside_of_manual_computations_are_refused() -> None:
    op = all_reduce(ALONG_Y, "%a", "tensor<8x8xf32>")
    text = HEAD.partition("  %r")[0] + op + "return %c : tensor<8x8xf32>\n}"
    with pytest.raises(ProgramError, match=r"crosses axes \{x, y\}"):
        es.optimize(text)


def test_subgroups_stay_within_each_position_along_the_free_axis() -> None:
    text = HEAD + all_reduce("[[0, 3], [1, 2], [4, 7], [5, 6]]") + TAIL
    plan = es.optimize(text)
    x = arrays((8, 8))[0]
    parts = x.reshape(4, 2, 8)
    (got,) = plan.to_jax()(x)
    np.testing.assert_allclose(got, (parts + parts[[3, 2, 1, 0]]).reshape(8, 8), rtol=1e-6)
