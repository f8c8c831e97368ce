"""Ops on windows, many in one program that XLA compiles: every device holds what the simulator says it does."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from tests.emit.devices import run_on_xla
from tests.ops.samples import types_of
from tests.ops.samples2 import convolution_attributes
from tests.spmd.on_xla import NARROW, SMALL, converted
from tests.spmd.test_window_program import MESHES, placed, programs

from eggshard.ops import registry
from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType, mlir_dtype, numpy_dtype
from eggshard.simulate.window_simulation import scatter_windows
from eggshard.steps.assemble import Assembler


def integers(*shape: int) -> np.ndarray:
    """Small whole numbers, of which all sums are exact."""
    return np.random.default_rng(len(shape)).integers(-9, 10, shape).astype(np.float32)


def padded(low: int, high: int, interior: int = 0) -> Attributes:
    return Attributes(edge_padding_low=(low, 0), edge_padding_high=(high, 0), interior_padding=(interior, 0))


def window_sum(size: tuple[int, int], strides: tuple[int, int], padding: tuple[tuple[int, int], ...],
               monoid: str = "add") -> Attributes:
    return Attributes(window_dimensions=size, window_strides=strides, base_dilations=(1, 1), window_dilations=(1, 1),
                      padding=padding, monoid=monoid)


FIELD, ZERO = integers(24, 3), np.array(0.5, np.float32)
CASES: dict[str, tuple[str, Attributes, list[np.ndarray]]] = {
    "slice": ("slice", Attributes(start_indices=(1, 0), limit_indices=(23, 3), strides=(1, 1)), [FIELD]),
    "strided slice": ("slice", Attributes(start_indices=(3, 0), limit_indices=(24, 3), strides=(2, 1)), [FIELD]),
    "row": ("slice", Attributes(start_indices=(17, 0), limit_indices=(18, 3), strides=(1, 1)), [FIELD]),
    "pad": ("pad", padded(2, 1), [FIELD, ZERO]),
    "cutting pad": ("pad", padded(-3, 2), [FIELD, ZERO]),
    "elements apart": ("pad", padded(2, 2, 1), [FIELD, ZERO]),
    "concatenation": ("concatenate", Attributes(dimension=0), [FIELD[:7], FIELD[7:9], FIELD[9:]]),
    "counter": ("iota", Attributes(shape=(24,), dtype="i32", iota_dimension=0), []),
    "window sum": ("reduce_window", window_sum((3, 1), (1, 1), ((1, 1), (0, 0))), [FIELD]),
    "strided window sum": ("reduce_window", window_sum((3, 1), (2, 1), ((0, 1), (0, 0))), [FIELD]),
    "window maximum": ("reduce_window", window_sum((4, 1), (1, 1), ((3, 0), (0, 0)), "max"), [FIELD]),
    "rotation": ("rotate", Attributes(dimension=0, amount=5), [FIELD]),
    "periodic rim": ("wrap", Attributes(dimension=0, lhs=2, rhs=1), [FIELD]),
    "edge": ("extend", Attributes(dimension=0, lhs=1, rhs=2, mode="edge"), [FIELD]),
    "mirrored rim": ("extend", Attributes(dimension=0, lhs=2, rhs=2, mode="reflect"), [FIELD]),
    "update": ("update_slice", Attributes(start_indices=(5, 0)), [FIELD, FIELD[1:10] * 2]),
    "update of a row": ("update_slice", Attributes(start_indices=(23, 0)), [FIELD, FIELD[1:2] * 2]),
    "update of a corner": ("update_slice", Attributes(start_indices=(7, 2)), [FIELD, FIELD[:2, :1] * 2]),
    "mirrored": ("reverse", Attributes(dimensions=(0,)), [FIELD]),
    "convolution": ("convolution", convolution_attributes(
        ("bf0", "oi0", "bf0"), padding=((1, 1),), window_strides=(1,)), [integers(1, 2, 24), integers(2, 2, 3)]),
    "kernel's gradient": ("convolution", convolution_attributes(
        ("f0b", "i0o", "0bf"), padding=((1, 2),), rhs_dilation=(2,)), [integers(2, 24, 2), integers(2, 11, 3)]),
}


def check(mesh: Mesh, case: str, count: int, dtype: str = "f32") -> int:
    """How many placements of a case's result there were; other element types than f32 hold signs alone."""
    name, attributes, arrays = CASES[case]
    if dtype != "f32":
        arrays = [np.sign(a).astype(numpy_dtype(dtype)) for a in arrays]
    rng = np.random.default_rng(count)
    definition = registry.get(name)
    (type_,), (whole,) = definition.infer(attributes, types_of(arrays)), definition.evaluate(attributes, arrays)
    found = list(programs(mesh, name, attributes, arrays, placed(
        rng, mesh, type_.shape, count, partial=case == "kernel's gradient")))
    assembler, shards, ends = Assembler(mesh), [], []
    for strategy, plan in found:
        values: list[Any] = []
        for v, array, placement in zip(plan.inputs, arrays, strategy.operands, strict=True):
            held, sent = plan.types[v], scatter_windows(mesh, array, placement)[:, None]
            shards.append(sent.astype(np.int8) if held.dtype in SMALL else sent)
            given = assembler.input(TensorType((1, *held.shape), mlir_dtype(shards[-1].dtype)))
            values.append(converted(assembler, assembler.reshape(given, held.shape), held.dtype))
        for v in assembler.emit(plan, tuple(values)):
            end = converted(assembler, v, "i8") if assembler.types[v].dtype in SMALL else v
            ends.append(assembler.reshape(end, (1, *assembler.types[end].shape)))
    with jax.enable_x64(True):
        made, _ = run_on_xla(assembler.build(ends), shards)
    for (strategy, _), got in zip(found, made, strict=True):
        (placement,), out = strategy.results, np.array(got)[:, 0].astype(numpy_dtype(type_.dtype))
        if placement.partial:
            groups = mesh.groups(placement.partial)
            out[groups] = out[groups].sum(1, keepdims=True)
        exists = scatter_windows(mesh, np.full(whole.shape, 7, np.int32), placement) == 7
        want = scatter_windows(mesh, np.asarray(whole), placement)
        np.testing.assert_array_equal(out[exists], want[exists], err_msg=f"{mesh} {case} {strategy}")
    return len(found)


@pytest.mark.parametrize(("case", "count"), [
    ("pad", 12), ("slice", 12), ("update of a row", 12), ("update of a corner", 12), ("kernel's gradient", 24)])
def test_some_windows(case: str, count: int) -> None:
    assert check(MESHES[0], case, count) > 5


@pytest.mark.parametrize(("case", "dtype"), [("edge", "i4"), ("window sum", "ui4"), ("rotation", "f8E5M2")])
def test_some_windows_of_narrow_types(case: str, dtype: str) -> None:
    assert check(MESHES[0], case, 12, dtype) > 5


@pytest.mark.slow
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("case", [case for case in CASES if case not in (
    "counter", "convolution", "kernel's gradient")])
@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_windows_of_narrow_types(mesh: Mesh, case: str, dtype: str) -> None:
    assert check(mesh, case, 30, dtype) > 5


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_windows(mesh: Mesh, case: str) -> None:
    assert check(mesh, case, 40) > 5
