"""Every op where some size is zero, at random shardings: planned, simulated, run on XLA and proved."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from tests.ops.oracles import assert_close
from tests.ops.samples import SAMPLES, Sample, types_of
from tests.ops.samples2 import SAMPLES2
from tests.ops.without_elements import without_elements

import eggshard as es
from eggshard.ops import registry
from eggshard.ops.region_builder import RegionBuilder
from eggshard.program.mesh import Mesh
from eggshard.program.program import Program
from eggshard.program.sharding import Sharding

jax = pytest.importorskip("jax")

MESH = Mesh({"x": 4, "y": 2})
#: Programs of this many ops are planned and compiled at once: much less time than one by one.
AT_ONCE = 40

Case = tuple[str, Sample]


def cases() -> Iterator[Case]:
    """Of every op; the boundary of an XLA program knows no integers of less than a byte."""
    for name in SAMPLES | SAMPLES2:
        for sample in without_elements(name):
            if name == "sharding_constraint":
                sample = sample[0].updated(sharding=Sharding.of(("y", "x"), 2, MESH)), *sample[1:]
            if all(t.dtype != "i4" for t in types_of(sample[1])):
                yield name, sample


def sharding(rng: np.random.Generator, rank: int) -> Sharding:
    """Each axis shards some dimension, or none."""
    where = [int(rng.integers(-1, rank)) for _ in MESH.axes] if rank else []
    return Sharding.of([tuple(a for a, d in zip(MESH.axes, where, strict=True) if d == i) or None
                        for i in range(rank)], rank, MESH)


def check(several: Sequence[Case], seed: int) -> None:
    """One program of all ops."""
    arrays = [a for _, (_, given, _) in several for a in given]
    builder, wanted, results = RegionBuilder(types_of(arrays)), [], []
    inputs = iter(builder.inputs)
    for name, (attrs, given, regions) in several:
        results += builder.add(name, [next(inputs) for _ in given], attrs, regions=regions)
        with np.errstate(all="ignore"):
            wanted += registry.get(name).evaluate(attrs, given, regions)
    region, rng = builder.build(results), np.random.default_rng(seed)
    ins, outs = (tuple(sharding(rng, region.types[v].rank) for v in side) for side in (region.inputs, results))
    plan = es.optimize(Program(MESH, region, ins, outs))
    with jax.enable_x64(True):
        on_xla = [np.asarray(a) for a in plan.to_jax()(*arrays)]
    for simulated, got, want in zip(plan.run(*arrays), on_xla, wanted, strict=True):
        assert_close(simulated, want, region)
        assert_close(got, want, region)
    assert plan.prove()


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_results_of_operands_without_elements(every: int) -> None:
    some = [c for c in cases() if any(a.size for a in registry.get(c[0]).evaluate(*c[1]))]
    assert len(some) > 30
    check(some[::every], 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_everything(seed: int) -> None:
    some, count = cases(), 0
    while several := list(itertools.islice(some, AT_ONCE)):
        check(several, seed)
        count += len(several)
    assert count > 600
