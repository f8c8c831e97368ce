"""Schedules: when steps run, in which order they stand, and that weighted prices bound the time of every schedule."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from eggshard.costmodel import AlphaBeta
from eggshard.costmodel.pricing import Chains, Pricer, Weighted
from eggshard.costmodel.schedule import COMPUTE, SPARE, scheduled, timeline
from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType
from eggshard.simulate.simulator import run
from eggshard.steps.assemble import Assembler
from eggshard.steps.control_steps import Loop
from eggshard.steps.dependencies import Dependencies
from eggshard.steps.peak_memory import peak_bytes
from eggshard.steps.steps import AllGather, AllReduce, Local, Slice, StepPlan

MESH = Mesh({"x": 2, "y": 2})
WIDE, NARROW = TensorType((16, 16), "f32"), TensorType((8, 16), "f32")


def machine(overlap: float, topology: object = "switch") -> Pricer:
    """A slow network and a slow device: a collective and a product take about as long."""
    model = AlphaBeta(topology, launch=1e-7, latency=1e-7, bandwidth=1e9, flops=1e10, memory=1e10, overlap=overlap)
    return Pricer(model, MESH)


def random_program(rng: random.Random, steps: int = 24) -> StepPlan:
    """Sums, products and collectives on random values; some results are never used."""
    b = Assembler(MESH)
    wide, narrow = [b.input(WIDE), b.input(WIDE)], [b.input(NARROW)]
    for _ in range(steps):
        axis, kind = rng.choice("xy"), rng.randrange(6)
        if kind == 0:
            narrow += b.emit(Slice(((0, (axis,)),)), (rng.choice(wide),))
        elif kind == 1:
            wide += b.emit(AllGather(((0, (axis,)),)), (rng.choice(narrow),))
        elif kind == 2:
            wide += b.emit(AllReduce((axis,), "max"), (rng.choice(wide),))
        elif kind == 3:
            wide += b.emit(Local("maximum", Attributes(), (WIDE,), flops=256.0 * rng.choice((1, 64))),
                           (rng.choice(wide), rng.choice(wide)))
        elif kind == 4:
            narrow += b.emit(Local("negate", Attributes(), (NARROW,), flops=128.0), (rng.choice(narrow),))
        else:
            wide += b.emit(Local("reshape", Attributes(shape=WIDE.shape), (WIDE,)), (rng.choice(wide),))
    return b.build(rng.sample(wide, min(3, len(wide))))


seeds = st.integers(0, 2**32)
machines = st.tuples(st.sampled_from((0.0, 0.3, 1.0)), st.sampled_from(("switch", "torus")))


@settings(max_examples=100, derandomize=True, deadline=None)
@given(seeds, machines)
def test_steps_wait_for_operands_and_for_their_resources(seed: int, how: tuple[float, str]) -> None:
    plan, price = random_program(random.Random(seed)), machine(*how)
    for program in (plan, scheduled(plan, price)):
        found, order = timeline(program, price), Dependencies(program)
        held: dict[str, float] = {}
        for i, work in enumerate(found.work):
            assert all(found.starts[i] >= found.ends[j] for j in order.before[i])
            assert found.awaited[i] == min(order.after[i], default=None)
            for resource, until in ((COMPUTE, work.computing), *((c, work.seconds) for c in work.channels)):
                if until:
                    assert found.starts[i] >= held.get(resource, 0.0)
                    held[resource] = found.starts[i] + until
        assert list(found.starts) == sorted(found.starts)
        total = sum(work.seconds for work in found.work)
        least = max(found.critical_path, *found.busy.values())
        assert least * (1 - 1e-12) <= found.makespan <= total * (1 + 1e-12)
        hidden = sum(found.hidden)
        if how[1] == "switch":
            assert found.makespan >= (total - hidden) * (1 - 1e-9)
        if how[0] == 0:
            assert found.makespan == pytest.approx(price.total(program)) and hidden == pytest.approx(0.0, abs=1e-12)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(seeds, machines)
def test_another_order_computes_the_same_sooner(seed: int, how: tuple[float, str]) -> None:
    rng = random.Random(seed)
    plan, price = random_program(rng), machine(*how)
    found = scheduled(plan, price)
    assert price.program(found) <= price.program(plan)
    assert peak_bytes(found) <= peak_bytes(plan) * (1 + SPARE)
    assert Counter(s.action for s in found.steps) == Counter(s.action for s in plan.steps)
    draw = np.random.default_rng(seed)
    shards = [draw.standard_normal((MESH.size, *plan.types[v].shape)).astype(np.float32) for v in plan.inputs]
    for one, other in zip(run(plan, shards), run(found, shards), strict=True):
        np.testing.assert_array_equal(one, other)
    if how[0] == 0:
        assert found is plan


@settings(max_examples=100, derandomize=True, deadline=None)
@given(seeds, machines)
def test_weighted_prices_add_up_to_no_more_than_the_schedule_takes(seed: int, how: tuple[float, str]) -> None:
    rng = random.Random(seed)
    plan, price = random_program(rng), machine(*how)
    names = (COMPUTE, *price.channels(()))
    drawn = [rng.choice((0.0, rng.random())) + 1e-9 for _ in names]
    weights = {name: w / sum(drawn) for name, w in zip(names, drawn, strict=True)}
    for program in (plan, scheduled(plan, price)):
        assert Weighted(price, weights).total(program) <= price.program(program) * (1 + 1e-9)
        assert Weighted(price, weights).program(program) == price.program(program)
        assert Chains(price).total(program) <= price.program(program) * (1 + 1e-9)


def gathers_and_layers(layers: int) -> StepPlan:
    """A chain of layers, each with a weight that is gathered just before it is used."""
    b = Assembler(MESH)
    value, shards = b.input(WIDE), [b.input(NARROW) for _ in range(layers)]
    for shard in shards:
        (whole,) = b.emit(AllGather(((0, ("x",)),)), (shard,))
        (value,) = b.emit(Local("maximum", Attributes(), (WIDE,), flops=7e3), (value, whole))
        (value,) = b.emit(Local("negate", Attributes(), (WIDE,), flops=1.0), (value,))
    return b.build([value])


def test_gathers_run_ahead_of_what_uses_them_but_not_all_at_once() -> None:
    plan, price = gathers_and_layers(40), machine(1.0)
    found = scheduled(plan, price)
    time = price.schedule(found)
    assert price.program(plan) > 1.4 * time.makespan
    assert time.makespan == pytest.approx(max(time.busy.values()), rel=0.1)
    ahead = [i for i, step in enumerate(found.steps) if step.action.messages]
    assert ahead[-1] > len(found.steps) // 2
    assert peak_bytes(found) <= peak_bytes(plan) * (1 + SPARE)


def test_what_is_sent_on_is_computed_first() -> None:
    """The longest step would come first by its own length; then the other's result would be sent too late."""
    b = Assembler(MESH)
    value = b.input(WIDE)
    (long,) = b.emit(Local("negate", Attributes(), (WIDE,), flops=1e5), (value,))
    (short,) = b.emit(Local("abs", Attributes(), (WIDE,), flops=1e3), (value,))
    (sent,) = b.emit(AllReduce(("x",), "max"), (short,))
    price = machine(1.0)
    found = scheduled(b.build([long, sent]), price)
    assert [s.action.kind for s in found.steps] == ["local", "all-reduce", "local"]
    assert price.schedule(found).hidden[1] == pytest.approx(price.schedule(found).work[1].seconds)


def test_collectives_over_different_links_run_at_once() -> None:
    b = Assembler(MESH)
    value = b.input(WIDE)
    made = [b.emit(AllReduce((axis,), "max"), (value,))[0] for axis in "xy"]
    plan = b.build(made)
    one, two = machine(1.0).schedule(plan), machine(1.0, "ring").schedule(plan)
    assert one.starts[1] == one.ends[0] and set(one.busy) == {COMPUTE, "switch"}
    assert two.starts == (0.0, 0.0) and set(two.busy) == {COMPUTE, "x", "y"}


def test_loops_that_communicate_hold_the_machine() -> None:
    price = machine(1.0)
    b = Assembler(MESH)
    value = b.input(WIDE)
    (sent,) = b.emit(AllReduce(("x",), "max"), (value,))
    (other,) = b.emit(Local("negate", Attributes(), (WIDE,), flops=1e4), (value,))
    body = b.build([b.emit(Local("maximum", Attributes(), (WIDE,)), (sent, other))[0]])
    flag = Assembler(MESH)
    flag.input(WIDE)
    condition = flag.build(flag.emit(Local("constant", Attributes(), (TensorType((), "i1"),)), ()))
    loop = Loop(condition, body, 3)
    assert price.program(body) < price.total(body)
    assert price(loop, WIDE) == pytest.approx(3 * price.program(body) + 4 * price.program(condition))
    outer = Assembler(MESH)
    x, y = outer.input(WIDE), outer.input(WIDE)
    (looped,) = outer.emit(loop, (x,))
    (apart,) = outer.emit(AllReduce(("y",), "max"), (y,))
    plan = outer.build([looped, apart])
    assert price.program(plan) == pytest.approx(price.total(plan))
    weights = {COMPUTE: 0.4, "switch": 0.6}
    assert Weighted(price, weights)(loop, WIDE) == price(loop, WIDE)
    assert set(price.schedule(plan).busy.values()) == {price(loop, WIDE), price.program(plan)}


def test_a_program_for_one_op_takes_its_shortest_chain() -> None:
    price = machine(1.0)
    b = Assembler(MESH)
    x, y = b.input(WIDE), b.input(WIDE)
    (sent,) = b.emit(AllReduce(("x",), "max"), (x,))
    (made,) = b.emit(Local("maximum", Attributes(), (WIDE,)), (sent, y))
    plan = b.build([made])
    assert Chains(price).total(plan) == pytest.approx(price.schedule(plan).work[1].seconds)
    assert Chains(price).total(b.build([made, sent])) == Chains.NEVER
