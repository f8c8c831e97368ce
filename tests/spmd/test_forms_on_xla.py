"""Every form in which an op runs on shards computes on XLA what the op computes on whole arrays."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
import pytest
from tests.ops.oracles import assert_close
from tests.ops.samples import SAMPLES, Sample, array, types_of
from tests.ops.samples2 import (
    SAMPLES2,
    argmax_update_region,
    gather_attributes,
    scaled_difference_region,
    scatter_attributes,
)
from tests.slowness import some
from tests.spmd.on_xla import NARROW, form, results_on_xla

from eggshard.ops import registry
from eggshard.placement.transfer import Strategy, enumerated
from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.types import numpy_dtype
from eggshard.simulate.simulator import gather_from_devices

MESHES = (Mesh({"x": 2}), Mesh({"x": 4}), Mesh({"x": 2, "y": 3}), Mesh({"x": 2, "y": 2}, device_ids=(2, 0, 3, 1)))
NAMES = ("dynamic_slice", "dynamic_update_slice", "gather", "scatter", "slice", "iota", "pad", "concatenate", "reverse",
         "reduce", "reduce_general", "reduce_window", "reduce_window_general", "select_and_scatter", "convolution",
         "dot_general", "convert", "rotate", "wrap", "extend", "update_slice", "sort")
#: Ops that move elements, or add and multiply them.
NARROW_NAMES = ("dynamic_slice", "dynamic_update_slice", "gather", "scatter", "slice", "pad", "concatenate", "reverse",
                "reduce", "reduce_window", "convolution", "dot_general", "rotate", "wrap", "extend", "update_slice")

Case = tuple[str, Sample]


def ways(mesh: Mesh, name: str, sample: Sample) -> tuple[Strategy, ...]:
    """The strategies of an op on a mesh."""
    attrs, arrays, regions = sample
    definition, operands = registry.get(name), types_of(arrays)
    return enumerated(mesh, definition.factors(attrs, operands, definition.infer(attrs, operands, regions))).found


def check(mesh: Mesh, cases: Iterable[Case]) -> int:
    """Every strategy of every case; returns how many there were."""
    forms = [form(mesh, name, sample, s) for name, sample in cases for s in ways(mesh, name, sample)]
    for made, f in zip(results_on_xla(mesh, forms), forms, strict=True):
        attrs, arrays, regions = f.sample
        wanted = registry.get(f.name).evaluate(attrs, arrays, regions)
        for shards, want, placement in zip(made, wanted, f.strategy.results, strict=True):
            got = gather_from_devices(mesh, shards, want.shape, placement)
            assert_close(got, want, (f.name, attrs, [*types_of(arrays)], arrays[1:], f.strategy, mesh))
    return len(forms)


def sampled(name: str, seed: int) -> list[Case]:
    """An op's sample cases."""
    return [(name, s) for s in (SAMPLES | SAMPLES2)[name](np.random.default_rng(seed))]


def narrowed(name: str, dtype: str) -> list[Case]:
    """An op's sample cases of f32 at another element type: numbers so small that sums and products are exact."""
    rng, kind = np.random.default_rng(7), numpy_dtype(dtype)
    return [
        (name, (attrs, [rng.integers(-1, 2, a.shape).astype(kind) if a.dtype == np.float32 else a for a in arrays], ()))
        for _, (attrs, arrays, regions) in sampled(name, 7)
        if not regions and any(a.dtype == np.float32 for a in arrays)
    ]


def at_one_place(rng: np.random.Generator, kind: str, n: int = 4) -> Iterator[Case]:
    """Ops with one window, which XLA turns into dynamic slices, at indices of an integer type, out of range ones too.

    The window's second dimension is a point, a part, or whole, where any other start than 0 is out of range.
    """
    limits, x = np.iinfo(kind), array(rng, (n, 6), "f32")
    firsts = dict.fromkeys(max(limits.min, a) for a in (limits.min, -1, 0, n - 2, n - 1, n, limits.max))
    for a, b in itertools.product(firsts, (limits.min, 2, limits.max)):
        if a > limits.max:
            continue
        places, both = [np.array(a, kind), np.array(b, kind)], np.array([a, b], kind)
        for width in (1, 3, 6):
            update = array(rng, (1, width), "f32")
            yield "dynamic_slice", (Attributes(slice_sizes=(1, width)), [x, *places], ())
            yield "dynamic_update_slice", (Attributes(), [x, update, *places], ())
            taken = {"offset_dims": (0,), "collapsed_slice_dims": (0,), "start_index_map": (0, 1)}
            yield "gather", (gather_attributes((1, width), **taken, index_vector_dim=0), [x, both], ())
            numbers = {"update_window_dims": (0,), "inserted_window_dims": (0,), "index_vector_dim": 0}
            for monoid, order in (("add", (0, 1)), ("set", (1, 0))):
                put = scatter_attributes(monoid, **numbers, scatter_dims_to_operand_dims=order)
                yield "scatter", (put, [x, both if order[0] == 0 else both[::-1].copy(), update[0]], ())


def scattered_pairs(rng: np.random.Generator) -> Iterator[Case]:
    """Single updates of two tensors at once, and by a body that is no monoid."""
    numbers = {"inserted_window_dims": (0, 1), "scatter_dims_to_operand_dims": (0, 1), "index_vector_dim": 0}
    x, tags = array(rng, (5, 6), "f32"), array(rng, (5, 6), "i32")
    scalar, tag = array(rng, (), "f32"), array(rng, (), "i32")
    for place in itertools.product((-1, 0, 3, 4, 5), (-1, 3, 6)):
        at = np.array(place, np.int32)
        yield "scatter", (scatter_attributes(**numbers), [x, at, scalar], (scaled_difference_region(),))
        yield "scatter", (scatter_attributes(**numbers), [x, tags, at, scalar, tag], (argmax_update_region(),))


@pytest.mark.parametrize(("every", "least"), [(43, 15), pytest.param(11, 60, marks=pytest.mark.slow)])
def test_one_window(every: int, least: int) -> None:
    rng = np.random.default_rng(0)
    assert check(MESHES[0], itertools.islice(at_one_place(rng, "int32"), 0, None, every)) > least
    assert check(MESHES[0], scattered_pairs(rng)) > 30


@pytest.mark.parametrize("name", some(["dynamic_slice", "slice", "reduce_window"], 2))
def test_samples(name: str) -> None:
    assert check(MESHES[1], sampled(name, 5)) > 10


@pytest.mark.slow
@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_all_samples(name: str, mesh: Mesh) -> None:
    assert check(mesh, sampled(name, 3))


@pytest.mark.parametrize(("name", "dtype"), some([
    ("extend", "i4"), ("reduce_window", "ui4"), ("rotate", "f8E4M3FN"),
], 2, rows=True))
def test_narrow_types(name: str, dtype: str) -> None:
    assert check(MESHES[0], narrowed(name, dtype)) > 10


@pytest.mark.slow
@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", NARROW_NAMES)
def test_all_narrow_types(name: str, dtype: str, mesh: Mesh) -> None:
    if name in ("convolution", "dot_general") and dtype in ("i4", "ui4"):
        pytest.skip("XLA on CPU multiplies no matrices of such integers")
    assert check(mesh, narrowed(name, dtype))


@pytest.mark.slow
@pytest.mark.parametrize("n", [4, 300])
@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_one_window_at_every_type_of_index(kind: str, n: int) -> None:
    rng = np.random.default_rng(n)
    for k, mesh in enumerate(MESHES[:2]):
        assert check(mesh, itertools.islice(at_one_place(rng, kind, n), k, None, 4)) > 50


@pytest.mark.slow
@pytest.mark.parametrize("n", [11, 300])
@pytest.mark.parametrize("kind", ["int8", "uint8", "int32", "uint64"])
def test_many_windows_at_every_type_of_index(kind: str, n: int) -> None:
    rng, limits = np.random.default_rng(1), np.iinfo(kind)
    x = array(rng, (n, 4), "f32")
    some = [limits.min, limits.min + 1, 0, 1, 3, 5, 10, 10, 11, 12, 126, limits.max - 1, limits.max]
    indices = np.array(some, kind).reshape(-1, 1)
    updates = array(rng, (len(indices), 4), "f32")
    rows = {"offset_dims": (1,), "collapsed_slice_dims": (0,), "start_index_map": (0,), "index_vector_dim": 1}
    added = {"update_window_dims": (1,), "inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,),
             "index_vector_dim": 1}
    cases: list[Case] = [("gather", (gather_attributes((1, 4), **rows), [x, indices], ()))]
    for monoid in ("add", "mul", "max", "min"):
        cases.append(("scatter", (scatter_attributes(monoid, **added), [x, indices, updates], ())))
    for mesh in MESHES[:3]:
        assert check(mesh, cases) > 10
