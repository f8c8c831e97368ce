"""Predicted memory against XLA's own analysis of the compiled plan, and the rules that the prediction follows."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from bench.memory import compiled_memory
from bench.peers import compile_text
from tests.slowness import some

import eggshard as es
from eggshard.costmodel import WireBytes
from eggshard.memory.prediction import fits, predicted
from eggshard.memory.xla_cpu.fusion import fused
from eggshard.memory.xla_cpu.instructions import instructions
from eggshard.memory.xla_cpu.packing import Lives
from eggshard.memory.xla_cpu.reading import graph_of
from eggshard.program.attributes import Attributes
from eggshard.program.types import TensorType
from eggshard.steps.assemble import Assembler
from eggshard.steps.steps import AllGather, AllReduce, Local, ReduceScatter


def builder() -> es.ProgramBuilder:
    return es.ProgramBuilder({"a": 4, "b": 2})


def chain(b: es.ProgramBuilder) -> None:
    """Elementwise ops in a row: one kernel."""
    x = b.input((64, 64), "f32", ("a", None))
    b.output(b.tanh(x * x + x), ("a", None))


def product(b: es.ProgramBuilder) -> None:
    """A product with partial sums on all devices, reduced: the partial sums are a temporary."""
    x, w = b.input((64, 512), "f32", (None, "a")), b.input((512, 128), "f32", ("a", None))
    b.output(b.dot(x, w), (None, None))


def two_products(b: es.ProgramBuilder) -> None:
    x, w = b.input((256, 64), "f32", ("a", None)), b.input((64, 256), "f32", (None, "b"))
    v = b.input((256, 64), "f32", ("b", None))
    b.output(b.dot(b.tanh(b.dot(x, w)), v), ("a", None))


def exchanged(b: es.ProgramBuilder) -> None:
    """An all-to-all: a buffer per block, sent and received."""
    x = b.input((64, 128), "f32", ("a", None))
    b.output(x + x, (None, "a"))


def gathered(b: es.ProgramBuilder) -> None:
    """A gather along the minor dimension is copied from where it was gathered."""
    x, w = b.input((64, 128), "f32", (None, "a")), b.input((128, 512), "f32", (None, "a"))
    b.output(b.dot(b.tanh(x), w), (None, "a"))


def short(b: es.ProgramBuilder) -> None:
    """Collectives of 16-bit floats are done in single precision."""
    x = b.input((64, 128), "bf16", ("a", None))
    b.output(x + x, (None, "a"))


def short_products(b: es.ProgramBuilder) -> None:
    """A factor of two products of 16-bit floats is made one in single precision once."""
    x, w, v = (b.input((256, 256), "bf16", (None, None)) for _ in range(3))
    b.output(b.dot(x, w) * b.dot(x, v), (None, None))


@pytest.mark.parametrize(
    "define", [chain, product, two_products, exchanged, gathered, short, short_products], ids=lambda f: f.__name__
)
def test_temporaries_are_those_of_the_compiled_program(define: Callable[[es.ProgramBuilder], None]) -> None:
    b = builder()
    define(b)
    plan = es.optimize(b.build(), cost_model=WireBytes())
    temporaries, arguments, outputs = compiled_memory(plan)
    assert plan.memory.arguments == arguments and plan.memory.outputs == outputs
    assert abs(plan.memory.temporaries - temporaries) <= max(0.15 * temporaries, 512)


def test_what_is_gathered_along_a_minor_dimension_is_copied_before() -> None:
    """So blocks of an all-to-all that are ready at once come before the gather, in memory too."""
    b = es.ProgramBuilder({"x": 8})
    x, w = b.input((512, 1024), "f32", (None, "x")), b.input((1024, 3072), "f32", ("x", None))
    product = b.dot(x, w)
    b.output(b.slice(product, [0, 0], [512, 1024]) * b.slice(product, [0, 1024], [512, 2048]), (None, None))
    plan = es.optimize(b.build(), cost_model=WireBytes())
    assert plan.collectives == {"all-gather": 2, "all-to-all": 2}
    assert plan.memory.temporaries == compiled_memory(plan)[0]


def test_what_was_scattered_along_a_minor_dimension_is_gathered_without_a_copy() -> None:
    out = Assembler(es.Mesh({"x": 4, "y": 2}))
    shard = out.input(TensorType((512, 768), "f32"))
    (doubled,) = out.emit(Local("add", Attributes(), (TensorType((512, 768), "f32"),), (), 0.0), (shard, shard))
    (scattered,) = out.emit(ReduceScatter(((1, ("x",)),), "add"), (doubled,))
    (gathered,) = out.emit(AllGather(((1, ("x",)),)), (scattered,))
    block = instructions(out.build((gathered,)))
    graph = graph_of(block, lambda *_: (Lives([], [], 0), set()))
    written = [graph.nodes[n].name for n in fused(graph).reads]
    assert written == ["blocks", "reduce_scatter", "all_gather", "transpose"]


def test_the_peak_is_all_of_it() -> None:
    b = builder()
    two_products(b)
    plan = es.optimize(b.build())
    assert plan.peak_bytes == plan.memory.peak == sum(plan.memory)
    assert predicted(plan.device_program) == plan.memory


def test_a_loop_carries_one_buffer_for_all_iterations() -> None:
    """The carried array is an output; what an iteration makes of it is a temporary, and the number of trips is not."""
    jax = pytest.importorskip("jax")
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((4, 2), ("a", "b"))
    sharding = NamedSharding(mesh, PartitionSpec("a", None))

    def step(trips: int) -> es.Plan:
        def run(x: object) -> object:
            return jax.lax.fori_loop(0, trips, lambda _, x: jax.numpy.roll(x, 1, 1) + x, x)

        shape = jax.ShapeDtypeStruct((256, 128), np.float32)
        return es.optimize(jax.jit(run, in_shardings=sharding, out_shardings=sharding).lower(shape))

    few, many = step(8), step(50)
    assert few.memory == many.memory
    assert many.memory.temporaries >= 64 * 128 * 4
    temporaries = compiled_memory(many, "cpu")[0]
    assert abs(many.memory.temporaries - temporaries) <= 0.1 * temporaries


def scanned(shape: tuple[int, ...], spec: tuple[str | None, ...], **options: Any) -> es.Plan:
    """Layers in a scan over a stack of weights, that are gathered one by one or not at all."""
    jax = pytest.importorskip("jax")
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((4, 2), ("a", "b"))

    def run(x: Any, ws: Any) -> Any:
        return jax.lax.scan(lambda x, w: (jax.numpy.tanh(x @ w) + x, None), x, ws)[0]

    rows, stack = (NamedSharding(mesh, PartitionSpec(*s)) for s in (("a", None), spec))
    shapes = [jax.ShapeDtypeStruct(s, np.float32) for s in ((512, shape[-1]), shape)]
    return es.optimize(jax.jit(run, in_shardings=(rows, stack), out_shardings=rows).lower(*shapes), **options)


@pytest.mark.parametrize("spec", some([(None, None, None), (None, None, "a"), (None, "a", None), (None, None, "b")], 2),
                         ids=str)
def test_loops_share_memory_with_what_is_inside(spec: tuple[str | None, ...]) -> None:
    """What is gathered along a minor dimension comes out of a stack that is laid out anew before the loop."""
    # The host's own machine goes another way than to gather along a minor dimension, which copies.
    plan = scanned((4, 256, 256), spec, cost_model="h100-node")
    temporaries = compiled_memory(plan)[0]
    assert plan.memory.temporaries == pytest.approx(temporaries, rel=0.01, abs=512)


@pytest.mark.xfail(reason="XLA slices the stack before it lays out what the all-to-all brought, the plan after: 64 KiB")
def test_a_loop_with_an_all_to_all_in_it() -> None:
    """The plan of the last of the programs above for this machine, where the loop lies as propagated."""
    plan = scanned((4, 256, 256), (None, None, "b"), effort="fast")
    assert plan.memory.temporaries == pytest.approx(compiled_memory(plan)[0], rel=0.01, abs=512)


@pytest.mark.parametrize(("in_turn", "copies"), [(True, 1), (False, 2)], ids=["in turn", "apart"])
def test_loops_that_begin_with_the_same_value_begin_with_copies(in_turn: bool, copies: int) -> None:
    """The last of loops in turn needs no copy; of loops that may run in any order each does."""
    jax = pytest.importorskip("jax")
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((4, 2), ("a", "b"))
    rows = NamedSharding(mesh, PartitionSpec("a", None))

    def run(x: Any) -> Any:
        start = jax.numpy.tanh(x)
        first = jax.lax.fori_loop(0, 5, lambda _, s: jax.numpy.roll(s, 1, 1) + x, start)
        factor = first if in_turn else x
        second = jax.lax.fori_loop(0, 5, lambda _, s: jax.numpy.roll(s, 2, 1) * factor, start)
        return jax.numpy.roll(first, 3, 1) * second

    shape = jax.ShapeDtypeStruct((512, 256), np.float32)
    # The loops lie as propagated: elsewhere the last one needs no copy either.
    plan = es.optimize(jax.jit(run, in_shardings=rows, out_shardings=rows).lower(shape), effort="fast")
    entry = compile_text(plan.to_stablehlo()).hlo_modules()[0].to_string().split("ENTRY")[1]
    assert len(re.findall(r"= f32\[128,256\]\S* copy\(", entry)) == copies
    assert plan.memory.temporaries >= 0.99 * compiled_memory(plan)[0]


def test_the_number_of_devices_divides_the_shards() -> None:
    b = builder()
    two_products(b)
    plan = es.optimize(b.build())
    assert plan.memory.arguments == sum(plan.device_program.types[v].bytes for v in plan.device_program.inputs)
    assert re.fullmatch(r"144 KiB per device: arguments 80 KiB, outputs 16 KiB, temporaries 48 KiB", str(plan.memory))


def test_all_reductions_that_others_make_wait_for_each_other_are_not_joined() -> None:
    mesh = es.Mesh({"x": 2, "y": 2})
    out = Assembler(mesh)
    type_ = TensorType((64,), "f32")
    p, r = out.input(type_), out.input(type_)

    def doubled(value: int) -> int:
        return out.emit(Local("add", Attributes(), (type_,), (), 64.0), (value, value))[0]

    (first,) = out.emit(AllReduce(("x",), "add"), (p,))
    (waits,) = out.emit(AllReduce(("y",), "add"), (doubled(first),))
    (free,) = out.emit(AllReduce(("y",), "add"), (r,))
    (last,) = out.emit(AllReduce(("x",), "add"), (doubled(free),))
    # The two along x become one, which waits for `free`; then `free` cannot wait for what `waits` needs.
    assert predicted(out.build((waits, last))).temporaries > 0


@pytest.mark.parametrize("define", [chain, product, gathered])
@pytest.mark.parametrize("times", [0.5, 1, 3, 100])
def test_what_fits_is_what_is_predicted(define: Callable[[es.ProgramBuilder], None], times: float) -> None:
    b = builder()
    define(b)
    plan = es.optimize(b.build(), cost_model="alpha-beta")
    assert fits(plan, int(times * plan.memory.peak)) == (times >= 1)
