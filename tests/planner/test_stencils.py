"""Stencils end to end: plans compute what the unsharded program means at every edge of the domain, bit for bit."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.slowness import some

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from bench.programs.spellings import SHIFTS, by_pad, by_shift  # noqa: E402
from jax import lax  # noqa: E402
from tests.random_stencils import Argument, lowered, placed, random_stencil  # noqa: E402

import eggshard as es  # noqa: E402
from eggshard.costmodel import AlphaBeta, Messages, WireBytes  # noqa: E402
from eggshard.engines.jax.verification import difference, tolerance  # noqa: E402
from eggshard.errors import EggshardWarning  # noqa: E402
from eggshard.frontends import load  # noqa: E402
from eggshard.ops.evaluate import evaluate_program  # noqa: E402
from eggshard.rewrites import default_rules  # noqa: E402
from eggshard.simulate.device_arrays import same_bits  # noqa: E402

X8, X4, X2 = {"x": 8}, {"x": 4}, {"x": 2}
PLANE = {"x": 4, "y": 2}


def argument(shape: tuple[int, ...], spec: str, dtype: str = "int32") -> Argument:
    """``spec``: per dimension its axes joined by commas, or ``-``."""
    return Argument(shape, dtype, tuple(() if dim == "-" else tuple(dim.split(",")) for dim in spec.split()))


def planned(function: Callable[..., Any], mesh: dict[str, int], *arguments: Argument, results: Any = "same",
            **options: Any) -> es.Plan:
    """A plan that was found without falling back. Results lie as the first argument, or (None) anywhere."""
    out: Any = None
    if results == "same":
        out = placed(mesh, arguments[0].spec)
    options.setdefault("cost_model", WireBytes())
    with warnings.catch_warnings():
        warnings.simplefilter("error", EggshardWarning)
        plan = es.optimize(lowered(function, mesh, arguments, out), **options)
    assert not plan.search.fallback
    return plan


def inputs_of(arguments: tuple[Argument, ...], seed: int, special: bool = False) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [a.draw(rng, special) for a in arguments]


def check(function: Callable[..., Any], mesh: dict[str, int], *arguments: Argument, seed: int = 0,
          special: bool = False, **options: Any) -> es.Plan:
    """The plan, which computes the bits that the unsharded program does."""
    plan = planned(function, mesh, *arguments, **options)
    inputs = inputs_of(arguments, seed, special)
    with np.errstate(all="ignore"):
        for got, want in zip(plan.run(*inputs), evaluate_program(plan.program, inputs), strict=True):
            assert same_bits(np.asarray(got), np.asarray(want)).all(), f"{got}\n{want}\n{plan}"
    return plan


def taps(rank: int, radius: int) -> dict[tuple[int, ...], int]:
    """Unequal weights, so that no two neighbours can be confused."""
    found = {(0,) * rank: 1}
    for axis, offset in itertools.product(range(rank), (*range(-radius, 0), *range(1, radius + 1))):
        found[tuple(offset * (a == axis) for a in range(rank))] = 3 + len(found)
    return found


EDGES = ("zero", "edge", "periodic", "reflect")
SPELLED: dict[str, Callable[..., Any]] = {
    "pad": by_pad, **{name: lambda t, edge, shift=shift: by_shift(t, shift, edge) for name, shift in SHIFTS.items()},
}


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("spelling", some(SPELLED, 3))
@pytest.mark.parametrize("radius", [*(pytest.param(r, marks=pytest.mark.slow) for r in (1, 2)), 3])
def test_edges_and_spellings(spelling: str, edge: str, radius: int) -> None:
    """On a line of 8 tiles, narrower than the halo for radius 3, two steps."""
    step = SPELLED[spelling](taps(1, radius), edge)
    check(lambda u: step(step(u)), X8, argument((16,), "x"), seed=radius)


GRIDS = ((X8, "x -"), (PLANE, "x y"), (PLANE, "y,x -"), (PLANE, "- x,y"), ({"x": 3, "y": 2}, "y x"))


@pytest.mark.parametrize("mesh,spec", some(GRIDS, 3, rows=True))
@pytest.mark.parametrize("spelling,edge", [("pad", "zero"), ("roll", "periodic")])
def test_planes(spelling: str, edge: str, mesh: dict[str, int], spec: str) -> None:
    check(SPELLED[spelling](taps(2, 1), edge), mesh, argument((24, 24), spec))


@pytest.mark.slow
@pytest.mark.parametrize("mesh,spec", GRIDS)
@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("spelling", SPELLED)
def test_planes_in_every_spelling(spelling: str, edge: str, mesh: dict[str, int], spec: str) -> None:
    step = SPELLED[spelling](taps(2, 1), edge)
    check(lambda u: step(step(u)), mesh, argument((24, 24), spec))


@pytest.mark.parametrize("rows", some([61, 63], 1))
@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("spelling", ["pad", "concat"])
def test_uneven_domains(spelling: str, edge: str, rows: int) -> None:
    """As many rows as an even domain asks for: the padding past the end of the last tile is not fetched."""
    step = SPELLED[spelling](taps(2, 2), edge)

    def run(u: Any) -> Any:
        return jnp.pad(step(step(u[:rows])), ((0, 64 - rows), (0, 0)))

    plan = check(run, X8, argument((64, 64), "x -"), seed=rows)
    assert plan.serial_bytes == 2 * 2 * 2 * 64 * 4


@pytest.mark.parametrize("amount", [1, 2, -3])
def test_uneven_rotations(amount: int) -> None:
    plan = check(lambda u: jnp.pad(jnp.roll(u[:61], amount, 0), ((0, 3), (0, 0))), X8, argument((64, 64), "x -"))
    assert plan.serial_bytes == abs(amount) * 64 * 4 and plan.collectives == {"collective-permute": 1}


@pytest.mark.parametrize("edge", EDGES)
def test_thin_tiles_go_by_columns(edge: str) -> None:
    """All rows of some columns instead of three rows of either side, and back; corners are not in the way."""
    plan = check(by_pad(dict.fromkeys(taps(2, 3), 2), edge), X8, argument((16, 64), "x -"))
    assert plan.collectives == {"all-to-all": 2} and plan.serial_bytes == 2 * 2 * 64 * 4 * 7 / 8


@pytest.mark.parametrize("value", some([0.0, -0.0, 2.5, math.nan, math.inf], 3))
def test_constant_edges(value: float) -> None:
    def step(u: Any) -> Any:
        p = jnp.pad(u, 1, constant_values=value)
        return jnp.maximum(p[:-2, 1:-1], p[2:, 1:-1]) + p[1:-1, 2:]

    for mesh, spec in ((X4, "x -"), (PLANE, "x y")):
        check(lambda u: step(step(u)), mesh, argument((8, 6), spec, "float32"), special=True, exact=True)


@pytest.mark.parametrize("mode", some(["edge", "reflect", "symmetric", "wrap", "constant"], 3))
def test_one_sided_pads(mode: str) -> None:
    def step(u: Any, low: int, high: int) -> Any:
        p = jnp.pad(u, (low, high), mode=mode)
        n = u.shape[0]
        return p[:n] - 2 * p[low + high :]

    for low, high, mesh in ((1, 0, X4), (0, 3, X8), (1, 3, X2), (3, 1, X4)):
        check(lambda u, low=low, high=high: step(step(u, low, high), low, high), mesh, argument((16,), "x"))


@pytest.mark.parametrize("spelling", some(["set", "add", "multiply", "max"], 2))
def test_updates_of_the_interior(spelling: str) -> None:
    def line(u: Any) -> Any:
        return getattr(u.at[1:-1], spelling)(u[:-2] - 3 * u[2:])

    def plane(u: Any) -> Any:
        return getattr(u.at[1:-1, 1:-1], spelling)(u[:-2, 1:-1] + 5 * u[2:, 1:-1] - u[1:-1, :-2] * u[1:-1, 2:])

    check(lambda u: line(line(line(u))), X8, argument((16,), "x"))
    check(lambda u: u.at[2:].set(u[:-2]).at[:-1].add(u[1:]), X4, argument((16,), "x"))
    for mesh, spec in ((X4, "x -"), (PLANE, "x y")):
        check(lambda u: plane(plane(u)), mesh, argument((8, 8), spec))


@pytest.mark.parametrize("steps", [1, 3, *(pytest.param(n, marks=pytest.mark.slow) for n in (8, 16))])
@pytest.mark.parametrize("edge", ["zero", "edge", "periodic"])
def test_many_steps(edge: str, steps: int) -> None:
    """Windows wider than a tile from some step on."""
    step = by_pad({(-1,): 2, (0,): 1, (1,): 3}, edge)

    def run(u: Any) -> Any:
        for _ in range(steps):
            u = step(u)
        return u

    plan = check(run, X4, argument((16,), "x"))
    assert plan.serial_bytes <= min(2 * 4 * steps, 2 * 4 * 4 * steps)


LOOKING: dict[str, Callable[[Any], Any]] = {
    "difference": lambda u: jnp.diff(u, axis=0),
    "growing": lambda u: jnp.pad(u, ((1, 1), (0, 0)))[1:] - 1,
    "n-2 and back": lambda u: jnp.pad(u[:-2] + u[2:], ((1, 1), (0, 0)), mode="edge"),
    "n+2 and back": lambda u: (lambda p: p[:-2] * 2 + p[1:-1] - p[2:])(jnp.pad(u, ((1, 1), (0, 0)))),
    "uneven inside": lambda u: jnp.pad(jnp.pad(u, ((0, 3), (0, 0)))[1:] * 2, ((2, 0), (0, 0)))[2:-2],
    "strided": lambda u: u[::2] - u[1::2],
    "strided and back": lambda u: lax.pad(u[::2] * 3, jnp.int32(7), [(0, 1, 1), (0, 0, 0)]),
    "negative padding": lambda u: lax.pad(lax.pad(u, jnp.int32(1), [(-2, 3, 0), (0, 0, 0)]), jnp.int32(2), [(1, -2, 0),
                                                                                                          (0, 0, 0)]),
    "interior padding": lambda u: lax.pad(u, jnp.int32(5), [(1, 0, 1), (0, 0, 0)])[1:-1],
    "reversed": lambda u: u[::-1] + 2 * jnp.roll(u, 1, 0),
    "folded": lambda u: (lambda p: p[:-2] + 2 * p[2:])(jnp.concatenate([u, u[-2:][::-1]])),
    "halves": lambda u: u[: u.shape[0] // 2] + 3 * u[u.shape[0] // 2 :],
    "halves swapped": lambda u: jnp.concatenate([u[u.shape[0] // 2 :], u[: u.shape[0] // 2]]),
    "windows": lambda u: lax.reduce_window(u, jnp.int32(0), lax.add, (3, 1), (1, 1), "SAME"),
    "greatest of windows": lambda u: lax.reduce_window(u, jnp.int32(-99), lax.max, (2, 1), (2, 1), "VALID"),
    "running sum": lambda u: jnp.cumsum(u, 0) - u,
    "taken": lambda u: jnp.take(u, (np.arange(u.shape[0]) + 2) % u.shape[0], 0),
    "row written": lambda u: lax.dynamic_update_slice_in_dim(u, 2 * u[3:5], 6, 0),
    "row read": lambda u: u + lax.dynamic_slice_in_dim(u, 5, 1, 0),
    "land": lambda u: jnp.where(lax.broadcasted_iota("int32", u.shape, 0) % 3 == 0, 0, jnp.roll(u, 1, 0) - u),
    "total": lambda u: jnp.roll(u, 1, 0) - jnp.sum(u[1:-1]),
    "least": lambda u: jnp.where(u == jnp.min(u[:-1]), jnp.roll(u, -1, 0), u) + jnp.argmax(u),
    "rows": lambda u: (jnp.pad(u, ((1, 1), (0, 0)))[2:] * jnp.sum(u, 1, keepdims=True)) + jnp.max(u, 0),
    "transposed": lambda u: jnp.roll(jnp.roll(u, 1, 0).T, 1, 1).T + u,
    "unit dimensions": lambda u: jnp.roll(jnp.roll(u, 1, 0)[:, None, :], 2, 0)[:, 0] - jnp.roll(u, 3, 0),
}


@pytest.mark.parametrize("what", some(LOOKING, 6))
def test_ways_of_looking(what: str) -> None:
    for mesh, spec in ((X4, "x -"), (PLANE, "y,x -")):
        check(LOOKING[what], mesh, argument((16, 4), spec), results=None)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "bool", "float16", "uint8"])
def test_types(dtype: str) -> None:
    def step(u: Any) -> Any:
        p = jnp.pad(u, 1, mode="edge")
        left, right = p[:-2, 1:-1], p[1:-1, 2:]
        return left ^ right if dtype == "bool" else jnp.maximum(left, right)

    check(lambda u: step(step(u)), PLANE, argument((8, 6), "x y", dtype))


@pytest.mark.parametrize("spec", some(["x -", "x y", "- x"], 2))
def test_nan_and_infinities(spec: str) -> None:
    """They stay where they are: nothing is multiplied by a mask, and nothing leaks from beyond a shard."""
    def step(u: Any) -> Any:
        inner = u.at[1:-1, 1:-1].set(u[:-2, 1:-1] + u[2:, 1:-1])
        return jnp.where(u > 1, jnp.pad(inner, 1)[:-2, 2:], inner)

    check(lambda u: step(step(u)), PLANE, argument((8, 8), spec, "float32"), special=True, exact=True)


@pytest.mark.slow
def test_fields_of_different_ranks() -> None:
    """A land mask of two dimensions, a profile of one, a field of three on three axes."""
    def step(u: Any, land: Any, depth: Any) -> Any:
        p = jnp.pad(u, ((1, 1), (1, 1), (0, 0)), mode="wrap")
        moved = p[:-2, 1:-1] - 2 * p[2:, 1:-1] + p[1:-1, :-2] * depth
        return jnp.where(land[:, :, None], 0, moved.at[:, :, 1:].add(-u[:, :, :-1]))

    mesh = {"x": 2, "y": 2, "z": 2}
    for spec, flat, deep in (("x y z", "x y", "z"), ("z,x - y", "z,x -", "y")):
        check(lambda u, land, depth: step(step(u, land, depth), land, depth), mesh, argument((8, 4, 4), spec),
              argument((8, 4), flat, "bool"), argument((4,), deep))


def test_staggered_grids() -> None:
    """Velocities on faces (n + 1, no device count divides it), heights on cells."""
    def step(h: Any, u: Any) -> tuple[Any, Any]:
        faces = jnp.zeros((h.shape[0] + 1,), h.dtype).at[1:-1].set(h[1:] - h[:-1]) + jnp.pad(u, (0, 1))
        return h - (faces[1:] - faces[:-1]), faces[:-1]

    def run(h: Any, u: Any) -> tuple[Any, Any]:
        for _ in range(3):
            h, u = step(h, u)
        return h, u

    for mesh in (X2, X4, X8):
        check(run, mesh, argument((16,), "x"), argument((16,), "x"))


def test_dimensions_of_size_one() -> None:
    """Single rows along a sharded dimension: a placement that cannot be told from another is not used."""
    check(lambda u: jnp.concatenate([jnp.zeros_like(u[:1]), u, u[1:]]), PLANE, argument((2, 6), "y -"), results=None)
    check(lambda u: jnp.take(u, (np.arange(8)[::-1] - 1) % 8, 0), {"x": 2, "y": 2, "z": 2}, argument((8, 2), "x,z y"),
          results=None, cost_model=Messages())


MACHINES = ("h100-node", "a100-node", "b200-node", "tpu-v5e", "tpu-v5p", "tpu-v6e")
MODELS = {"bytes": WireBytes(), "messages": Messages(), **{name: AlphaBeta.preset(name) for name in MACHINES}}


@pytest.mark.parametrize("model", some(MODELS, 4))
def test_cost_models(model: str) -> None:
    step = by_pad(taps(2, 1), "zero")
    check(lambda u: step(step(step(u))), PLANE, argument((16, 16), "x y"), cost_model=MODELS[model])


def test_latency_widens() -> None:
    """Where messages are dear there are fewer, at wider windows; where computing is dear every step exchanges."""
    def run(u: Any) -> Any:
        for _ in range(8):
            u = jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) - 3 * u
        return u

    field = argument((256, 16), "x -")
    latency = AlphaBeta(launch=1e-3, latency=0, bandwidth=5e6, flops=1e15, memory=1e15)
    compute = AlphaBeta(launch=1e-7, latency=0, bandwidth=1e7, flops=1e6, memory=1e15)
    few, many = (check(run, X8, field, cost_model=model) for model in (latency, compute))
    assert few.collectives == {"collective-permute": 2}
    assert many.collectives == {"collective-permute": 16}


# Defects that other planners of halo exchanges have had.


def extend(x: Any, low: int, high: int) -> Any:
    """The first ``low`` and last ``high`` elements again on either side."""
    return jnp.concatenate([x[:low], x, x[x.shape[0] - high :]])


@pytest.mark.parametrize("low,high", some([(1, 3), (3, 1), (4, 0), (0, 4), (2, 2)], 3, rows=True))
def test_sides_of_different_widths_on_two_devices(low: int, high: int) -> None:
    for function in (lambda x: extend(x, low, high), lambda x: jnp.pad(x, (low, high), mode="edge"),
                     lambda x: jnp.pad(x, (low, high), mode="wrap")):
        check(function, X2, argument((16,), "x"), results=None)


@pytest.mark.parametrize("low,high", some([(1, 1), (1, 3), (2, 2), (4, 0), (0, 4)], 3, rows=True))
def test_no_collective_is_taken_by_some_devices_alone(low: int, high: int) -> None:
    """On four devices, run: a collective in a branch that only edge devices take would never end."""
    jax_callable = pytest.importorskip("eggshard.engines.jax.callable")
    for mode in ("edge", "wrap"):
        field = argument((16,), "x")
        plan = check(lambda x, mode=mode: jnp.pad(x, (low, high), mode=mode) * 2, X4, field, results=None)
        inputs = inputs_of((field,), 1)
        (got,), (want,) = jax_callable.run_on_devices(plan, inputs), evaluate_program(plan.program, inputs)
        np.testing.assert_array_equal(np.asarray(got), want)


@pytest.mark.parametrize("exact", [False, True])
def test_update_of_a_region_of_nan(exact: bool) -> None:
    """What is overwritten may be NaN: no mask is multiplied with it."""
    plan = planned(lambda a: jnp.log(a).at[2:6].set(5.0), X4, argument((8,), "x", "float32"), exact=exact)
    (got,) = plan.run(np.where((np.arange(8) > 1) & (np.arange(8) < 5), -1, 1).astype(np.float32))
    np.testing.assert_array_equal(got, [0, 0, 5, 5, 5, 5, 0, 0])


def test_first_element_before_an_extended_array() -> None:
    """x0 before x0 x0 x1 x2 ...: not the first two elements before x."""
    x = np.arange(5, dtype=np.int32)[:4]
    for mesh in (X2, X4):
        plan = planned(lambda x: jnp.concatenate([x[:1], jnp.concatenate([x[:1], x])])[:6], mesh, argument((4,), "x"),
                       results=None)
        np.testing.assert_array_equal(plan.run(x)[0], [0, 0, 0, 1, 2, 3])
        plan = planned(lambda x: jnp.concatenate([x[:1], extend(x, 1, 0)]), mesh, argument((4,), "x"), results=None)
        np.testing.assert_array_equal(plan.run(x)[0], [0, 0, 0, 1, 2, 3])


# Properties of random programs.

COST_MODELS = (
    WireBytes(), WireBytes(), AlphaBeta(), Messages(), AlphaBeta.preset("tpu-v5e"), AlphaBeta(flops=1e9, memory=1e9),
)  # fmt: skip


def check_random(seed: int, steps: int) -> None:
    rng = random.Random(seed)
    special = rng.random() < 0.2
    program = random_stencil(rng, steps, special)
    exact = special or rng.random() < 0.4
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", EggshardWarning)
        plan = es.optimize(program.lower(), cost_model=rng.choice(COST_MODELS), exact=exact)
    inputs = program.inputs(np.random.default_rng(seed), special)
    with np.errstate(all="ignore"):
        results = zip(plan.run(*inputs), evaluate_program(plan.program, inputs), plan.program.output_types, strict=True)
        for got, want, type_ in results:
            got, want = np.asarray(got), np.asarray(want)
            if exact or not type_.dtype.startswith(("f", "bf")):
                assert same_bits(got, want).all(), f"{program}\n{got}\n{want}"
            else:
                assert difference(got, want) <= tolerance(type_.dtype), f"{program}\n{got}\n{want}"
    assert plan.cost.total <= plan.baseline.cost.total * (1 + 1e-9)
    assert plan.bound <= plan.cost.total * (1 + 1e-9)


@pytest.mark.parametrize("seed", some(range(20), 4))
def test_random_programs(seed: int) -> None:
    check_random(seed, steps=5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_more_random_programs(seed: int) -> None:
    check_random(seed, steps=10)


# The order of rules and of the program's ops.


def shuffled_ops(program: es.Program, rng: random.Random) -> es.Program:
    """The program with its ops in another order, in which operands still come first."""
    region = program.region
    known, waiting, ops = set(region.inputs), list(region.ops), []
    while waiting:
        ready = [op for op in waiting if known.issuperset(op.operands)]
        op = rng.choice(ready)
        waiting.remove(op)
        ops.append(op)
        known.update(op.results)
    return dataclasses.replace(program, region=dataclasses.replace(region, ops=tuple(ops)))


ORDERED: dict[str, Callable[[Any], Any]] = {
    "pads": lambda u: by_pad(taps(2, 1), "zero")(by_pad(taps(2, 1), "zero")(u)),
    "rolls": lambda u: by_shift(taps(2, 1), SHIFTS["roll"], "periodic")(u),
    "concatenations": lambda u: by_shift(taps(2, 1), SHIFTS["concat"], "edge")(u),
    "updates": lambda u: u.at[1:-1].set(u[:-2] + 2 * u[2:]).at[1:-1, 1:-1].add(u[1:-1, :-2]),
}


@pytest.mark.parametrize("what", some(ORDERED, 2))
def test_order_does_not_matter(what: str) -> None:
    program = load(lowered(ORDERED[what], PLANE, (argument((16, 8), "x y"),), None))
    first = es.optimize(program, cost_model=WireBytes())
    for seed in range(2):
        rng = random.Random(seed)
        rules = list(default_rules())
        rng.shuffle(rules)
        again = es.optimize(shuffled_ops(program, rng), cost_model=WireBytes(), rewrites=rules)
        assert again.cost.total == pytest.approx(first.cost.total, rel=1e-6)


def test_plans_to_begin_with_stay_where_candidates_are_left_out() -> None:
    def steps(u: Any) -> Any:
        for _ in range(8):
            u = u + jnp.roll(u, 1, 0) - 2 * u + jnp.roll(u, -1, 0)
        return u

    plan = planned(steps, X8, argument((2048, 64), "x -", "float32"), cost_model=None,
                   limits=es.Limits(placements=6))
    assert "among the candidates" in plan.certificate and plan.collectives == {"collective-permute": 2}
