"""Reduced sizes: wrong plans stay wrong, and plans that only full sizes can tell are told there."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

import pytest
from testing.plan_mutants import mutants
from tests.random_programs import random_case
from tests.random_stencils import Argument, lowered, random_stencil
from tests.slowness import some

import eggshard as es
from eggshard.api import Plan
from eggshard.frontends import load
from eggshard.frontends.builder import ProgramBuilder, Tensor
from eggshard.limits import Deadline
from eggshard.program.types import is_float
from eggshard.prove.proving import prove
from eggshard.prove.sizes import shrinking
from eggshard.prove.sizes.shrinking import Sizes

jax = pytest.importorskip("jax")
jnp = jax.numpy
N = 512


def program(of: Callable[[ProgramBuilder, Tensor, Tensor], Tensor], out=("x", None)) -> es.Program:
    b = ProgramBuilder({"x": 4, "y": 2})
    x, w = b.input((N, N), sharding=("x", "y")), b.input((N, N), sharding=("y", None))
    b.output(of(b, x, w), sharding=out)
    return b.build()


def row_sums(b: ProgramBuilder, x: Tensor) -> Tensor:
    return b.broadcast(b.sum(x, 1, keep=True), x.shape)


def columns(b: ProgramBuilder, x: Tensor) -> Tensor:
    return b.transpose(row_sums(b, x))


#: What is computed, and what is not the same, though it is on few places.
PAIRS = {
    "square of a sum": (lambda b, x, w: row_sums(b, x) * row_sums(b, x), lambda b, x, w: row_sums(b, x * x)),
    "cube of a sum": (
        lambda b, x, w: row_sums(b, x) * row_sums(b, x) * row_sums(b, x),
        lambda b, x, w: row_sums(b, x) * row_sums(b, x * x) * 3.0 - row_sums(b, x * x * x) * 2.0,
    ),
    "rows and columns": (
        lambda b, x, w: row_sums(b, x) - columns(b, x),
        lambda b, x, w: columns(b, x) - row_sums(b, x),
    ),
    "places counted": (lambda b, x, w: row_sums(b, x * 0.0 + 1.0) * x, lambda b, x, w: x * 16.0),
    "product": (lambda b, x, w: b.dot(b.dot(x, w), w), lambda b, x, w: b.dot(x, w)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_what_differs_at_full_size_differs(name):
    """A plan of one program is held against the other one, which takes and gives arrays of its types."""
    right, wrong = (program(of) for of in PAIRS[name])
    plan = es.optimize(right, cost_model=es.costmodel.WireBytes())
    assert plan.prove()
    assert not Plan.of(dataclasses.replace(plan, program=wrong)).prove()


def test_layers_are_proved_on_few_places():
    """A plan of a program that only products and sums look at is run on a few thousand elements."""
    def layer(b: ProgramBuilder, x: Tensor, w: Tensor) -> Tensor:
        return b.op("tanh", b.dot(x - row_sums(b, x) / float(N), w)) + x

    plan = es.optimize(program(layer), cost_model=es.costmodel.WireBytes())
    sizes = Sizes(plan)
    assert sizes.of_run(0).elements < sizes.whole / 10
    proof = plan.prove()
    assert proof and proof.sizes < proof.whole and "reduced sizes" in str(proof)
    assert proof.bound < 2.0**-40


def test_what_a_program_counts_is_told_at_full_size():
    """The mean of a constant is the constant, where as many are added as the program says."""
    plan = es.optimize(program(lambda b, x, w: row_sums(b, x * 0.0 + 2.0) / float(N) + x))
    other = program(lambda b, x, w: x + 2.0)
    proof = Plan.of(dataclasses.replace(plan, program=other)).prove()
    assert proof and proof.sizes == proof.whole


def test_the_largest_of_one_place_is_no_smallest(monkeypatch):
    """Where a maximum is taken two places are left at least."""
    monkeypatch.setattr(shrinking, "ENOUGH", 1)
    b = ProgramBuilder({"x": 4})
    x = b.input((32, 16), sharding=(None, "x"))
    b.output(x - b.broadcast(b.max(x, 0, keep=True), x.shape), sharding=(None, "x"))
    plan = es.optimize(b.build(), limits=es.Limits(proof=0))
    wrong = [fault.plan for fault in mutants(plan.device_program) if fault.kind == "wrong monoid"]
    assert plan.prove() and wrong
    assert not any(Plan.of(dataclasses.replace(plan, device_program=steps)).prove() for steps in wrong)


def five_points(x):
    inner = 4.0 * x[1:-1, 1:-1] - x[2:, 1:-1] - x[:-2, 1:-1] - x[1:-1, 2:] - x[1:-1, :-2]
    return x.at[1:-1, 1:-1].add(inner)


STENCILS = {
    "interior": five_points,
    "three steps": lambda x: five_points(five_points(five_points(x))),
    "periodic": lambda x: jnp.roll(x, 1, 0) + jnp.roll(x, -2, 1) * x,
    "mirrored": lambda x: x + jnp.pad(x, 2, mode="reflect")[:-4, 4:] * x[::-1],
    "loop": lambda x: jax.lax.fori_loop(0, 3, lambda i, a: jnp.pad(a, 1)[2:, 1:-1] + a, x),
}


@pytest.mark.parametrize("name", STENCILS)
def test_windows_pass_along_short_lines(name):
    """Stencils of a quarter million elements are proved on a tenth of them, and their mutants are found there."""
    source = lowered(STENCILS[name], {"x": 4, "y": 2}, [Argument((N, N), "float32", (("x",), ("y",)))], None)
    plan = es.optimize(source, cost_model=es.costmodel.WireBytes(), limits=es.Limits(proof=0))
    proof = plan.prove()
    assert proof and proof.sizes < proof.whole / 10
    faults = [fault for fault in mutants(plan.device_program) if fault.kind.startswith(("halo", "slab", "slice"))]
    for fault in random.Random(0).sample(faults, min(4, len(faults))):
        mutant = Plan.of(dataclasses.replace(plan, device_program=fault.plan))
        assert mutant.prove().equal == mutant.prove(shrink=False).equal, fault.kind


def masked(direction):
    """Attention without a denominator, to the rows up to, or before, one's own."""
    def function(x):
        rows, columns = (jax.lax.broadcasted_iota("int32", (N, N), d) for d in range(2))
        return jnp.where(direction(rows, columns), jnp.exp(x @ x.T), 0.0) @ x

    return function


def counted(direction, times=1):
    """Sums of the rows before one's own, and of the same number over as many; repeated, of such sums."""
    def function(x, c):
        rows, columns = (jax.lax.broadcasted_iota("int32", (N, N), d) for d in range(2))
        counts = jnp.broadcast_to(c, x.shape)
        for _ in range(times):
            counts = jnp.where(direction(rows, columns), 1.0, 0.0) @ counts
        return jnp.where(rows > columns, 1.0, 0.0) @ x + counts

    return function


#: What counts places, and how many at row 0, 1, 2, ... of n.
COUNTS = {
    "not after": counted(jnp.greater_equal),  # 1 2 3 ...
    "before": counted(jnp.greater),  # 0 1 2 ...
    "not before": counted(jnp.less_equal),  # n n-1 n-2 ...
    "itself": counted(jnp.equal),  # 1 1 1 ...
    "sums of those": counted(jnp.greater_equal, 2),  # 1 3 6 10 ...
    "their sums": counted(jnp.greater_equal, 3),  # 1 4 10 20 ...
}


ORDERS = {
    "not before": masked(jnp.greater_equal), "after": masked(jnp.greater), "not after": masked(jnp.less_equal),
    "itself": masked(jnp.equal),
}


@pytest.fixture(scope="module")
def causal():
    return {
        name: es.optimize(lowered(of, {"x": 4, "y": 2}, [Argument((N, 16), "float32", ((), ("x", "y")))], None),
                          limits=es.Limits(proof=0))
        for name, of in ORDERS.items()
    }


@pytest.mark.parametrize("other", ORDERS)
def test_positions_that_are_compared(causal, other):
    """What a mask's order decides is decided on few places."""
    plan = causal["not before"]
    proof = Plan.of(dataclasses.replace(plan, program=causal[other].program)).prove()
    assert proof.equal == (other == "not before")
    assert not proof or proof.sizes < proof.whole / 10


@pytest.fixture(scope="module")
def counting():
    return {
        name: es.optimize(lowered(of, {"x": 4}, [Argument((N, 16), "float32", ((), ("x",))),
                                         Argument((16,), "float32", (("x",),))], None), limits=es.Limits(proof=0))
        for name, of in COUNTS.items()
    }


@pytest.mark.parametrize("other", some(COUNTS, 3))
@pytest.mark.parametrize("name", COUNTS)
def test_places_that_are_counted_in_an_order(counting, name, other):
    """How many places lie before one is told on few places."""
    plan = Plan.of(dataclasses.replace(counting[name], program=counting[other].program))
    proof = plan.prove()
    assert proof.equal == (other == name)
    assert not proof or proof.sizes < proof.whole / 10


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["programs", "stencils"])
def test_reduced_sizes_find_what_full_sizes_find(monkeypatch, kind):
    """Mutants of random plans on floats, cut as far as they can be."""
    monkeypatch.setattr(shrinking, "ENOUGH", 1)
    found = cut = 0
    for seed in range(7000, 7400 if kind == "programs" else 7150):
        rng = random.Random(seed)
        drawn = load(random_case(rng).program if kind == "programs"
                     else random_stencil(rng, steps=3, scale=12).lower())
        if not all(is_float(t.dtype) for t in drawn.region.types):
            continue
        plan = es.optimize(drawn, limits=es.Limits(proof=0))
        faults = [fault for fault in mutants(plan.device_program) if "endless" not in fault.kind]
        for fault in random.Random(seed).sample(faults, min(4, len(faults))):
            mutant = Plan.of(dataclasses.replace(plan, device_program=fault.plan))
            if mutant.prove(shrink=False).equal is False:
                proof = mutant.prove()
                assert proof.equal is False, (seed, fault.kind)
                found, cut = found + 1, cut + (Sizes(mutant).of_run(0).elements < Sizes(mutant).whole)
    assert found > 50 and cut > 20


def test_loops_in_loops_end_with_the_time_that_is_given():
    """What nested loops need is found by going through them again and again."""
    @jax.jit
    def nested(x):
        return jax.lax.while_loop(
            lambda a: jnp.sum(a) < 9, lambda a: jax.lax.while_loop(lambda c: jnp.max(c) < 3, lambda c: c * c, a), x)

    plan = es.optimize(nested.lower(jnp.ones((64, 64))))
    with pytest.raises(TimeoutError):
        Sizes(plan, deadline=Deadline(0.0))
    assert prove(plan, within=1e-9).late and not prove(plan, within=1e-9)


def test_rows_that_wrap_around_most_of_a_dimension_are_not_cut() -> None:
    """What is put before and behind it is no place near an edge, at which sizes could be reduced."""
    rows, most = 64, 3056
    text = f"""sdy.mesh @mesh = <["x"=4]>
      func.func @main(%a: tensor<{rows}x{most}xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{}}, {{"x"}}]>}})
          -> tensor<{rows}x{most + 1}xf32> {{
        %0 = stablehlo.slice %a [0:{rows}, 2:{most}] : (tensor<{rows}x{most}xf32>) -> tensor<{rows}x{most - 2}xf32>
        %1 = stablehlo.slice %a [0:{rows}, 0:3] : (tensor<{rows}x{most}xf32>) -> tensor<{rows}x3xf32>
        %2 = stablehlo.concatenate %0, %1, dim = 1
          : (tensor<{rows}x{most - 2}xf32>, tensor<{rows}x3xf32>) -> tensor<{rows}x{most + 1}xf32>
        return %2 : tensor<{rows}x{most + 1}xf32> }}"""
    plan = es.optimize(text, cost_model=es.costmodel.WireBytes(), limits=es.Limits(proof=0))
    assert "wrap" in str(plan) and plan.prove().equal
