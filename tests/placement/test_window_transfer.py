"""Strategies on windows: ops computed on shards hold what the whole op's result holds there."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from eggshard.ops import registry
from eggshard.ops.base import PASS, PERMUTE
from eggshard.ops.windowing import Reach
from eggshard.placement.window_transfer import WindowTransfer, linked
from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Dim, Placement, place
from eggshard.program.types import TensorType
from eggshard.simulate.simulator import run
from eggshard.simulate.window_simulation import scatter_windows
from eggshard.spmd.window_program import window_program

MESHES = (Mesh({"x": 4}), Mesh({"x": 4, "y": 2}), Mesh({"x": 2, "y": 2, "z": 2}), Mesh({"x": 3, "y": 2}))
Case = tuple[str, dict[str, Any], tuple[TensorType, ...]]


def cases(rng: random.Random) -> Case:
    """An op that looks along dimension 0 of a plane, and its operands."""
    n, m, w = rng.randint(8, 17), rng.choice((1, 4, 6)), rng.randint(0, 3)
    x = TensorType((n, m), "i32")
    low, high = rng.randint(-2, 3), rng.randint(-2, 3)
    name = rng.choice(("slice", "slice", "pad", "pad", "rotate", "wrap", "extend", "concatenate", "update_slice", "add",
                       "transpose"))
    match name:
        case "slice":
            start, stride = rng.randrange(4), rng.choice((1, 1, 2))
            return name, {"start_indices": (start, 0), "limit_indices": (n - w, m), "strides": (stride, 1)}, (x,)
        case "pad":
            return name, {"edge_padding_low": (low, 0), "edge_padding_high": (high, 0),
                          "interior_padding": (0, 0)}, (x, TensorType((), "i32"))
        case "rotate":
            return name, {"amount": rng.randrange(n), "dimension": 0}, (x,)
        case "wrap":
            return name, {"lhs": w, "rhs": rng.randrange(3), "dimension": 0}, (x,)
        case "extend":
            mode = rng.choice(("edge", "reflect", "symmetric"))
            return name, {"lhs": w, "rhs": rng.randrange(3), "dimension": 0, "mode": mode}, (x,)
        case "concatenate":
            return name, {"dimension": 0}, (x, TensorType((rng.randint(2, 9), m), "i32"), x)
        case "update_slice":
            size = rng.randint(2, n - 1)
            return name, {"start_indices": (rng.randint(0, n - size), 0)}, (x, TensorType((size, m), "i32"))
        case "transpose":
            return name, {"permutation": (1, 0)}, (x,)
    return name, {}, (x, x)


def transfer_of(mesh: Mesh, name: str, attributes: Attributes, types: tuple[TensorType, ...], result: TensorType
                ) -> WindowTransfer:
    op = registry.get(name)
    return WindowTransfer(
        mesh, op.factors(attributes, types, (result,)), op.reaches(attributes, types, (result,)), types, result,
        frozenset(), lambda monoid: False, 512,
        lambda windows: op.window_allowed(attributes, types, (result,), windows),
    )


def windowed(rng: random.Random, shape: tuple[int, ...], placement: Placement) -> Placement:
    """The placement with a window around some of its sharded dimensions."""
    def window(dim: Dim, n: int) -> Dim:
        if not dim.axes or rng.random() < 0.3:
            return dim
        low, high = -rng.randint(0, 3), rng.randint(0, 3)
        if rng.random() < 0.3:
            low = high = rng.randint(-2, 2)
        wrapped = (low - rng.randint(0, 1), n + rng.randint(0, 4)) if rng.random() < 0.2 else None
        return dim._replace(low=low, high=high, wrapped=wrapped)

    return Placement(tuple(map(window, placement.dims, shape)))


@pytest.mark.parametrize("seed", range(8))
def test_ops_on_windows(seed: int) -> None:
    rng, checked = random.Random(seed), 0
    for _ in range(25):
        name, attrs, types = cases(rng)
        mesh, op, attributes = rng.choice(MESHES), registry.get(name), Attributes(attrs)
        (result,) = op.infer(attributes, types)
        transfer = transfer_of(mesh, name, attributes, types, result)
        data = np.random.default_rng(seed)
        arrays = [data.permutation(t.elements).astype(np.int32).reshape(t.shape) + 1 for t in types]
        (want,) = op.evaluate(attributes, arrays)
        for standard in transfer.standard():
            placement = windowed(rng, result.shape, standard)
            for s in transfer.at(placement):
                assert s.results == (placement,)
                shards = [scatter_windows(mesh, a, p) for a, p in zip(arrays, s.operands, strict=True)]
                along = frozenset(d for d in transfer.windowed if placement.dims[d].axes)
                if not along:
                    continue
                plan = window_program(mesh, op, attributes, types, (result,), s, along)
                (got,) = run(plan, shards)
                inside = scatter_windows(mesh, np.ones(result.shape, np.int32), placement) == 1
                expected = scatter_windows(mesh, np.asarray(want), placement)
                np.testing.assert_array_equal(
                    np.where(inside, got, 0), np.where(inside, expected, 0), err_msg=f"{name} {attrs} {types} {s}")
                checked += 1
    assert checked > 20


def test_elementwise_ops_act_at_any_window() -> None:
    mesh, x = MESHES[1], TensorType((16, 8), "f32")
    transfer = transfer_of(mesh, "add", Attributes(), (x, x), x)
    wide = Placement((Dim(("x",), 4, -3, 2, (-3, 18)), Dim(("y",), 4, 1, 1)))
    (found,) = transfer.at(wide)
    assert found.operands == (wide, wide) and not transfer.windowed and not transfer.periodic


def test_what_a_slice_reaches() -> None:
    mesh, x, y = MESHES[0], TensorType((16,), "f32"), TensorType((12,), "f32")
    attributes = Attributes({"start_indices": (3,), "limit_indices": (15,), "strides": (1,)})
    transfer = transfer_of(mesh, "slice", attributes, (x,), y)
    (found,) = transfer.at(place(mesh, (12,), (("x",),)))
    assert found.operands == (Placement((Dim(("x",), 3, 3, 3),)),)
    # Indices modulo 12 are none of the operand's.
    assert not transfer.at(Placement((Dim(("x",), 3, -1, 1, (-1, 13)),))) and not transfer.periodic


def test_rotations_are_periodic() -> None:
    mesh, x = MESHES[0], TensorType((16,), "f32")
    transfer = transfer_of(mesh, "rotate", Attributes({"amount": 15, "dimension": 0}), (x,), x)
    (found,) = transfer.at(Placement((Dim(("x",), 4, -1, 1, (-1, 17)),)))
    assert transfer.periodic and found.operands == (Placement((Dim(("x",), 4, -2, 0, (-2, 16)),)),)
    # What turns it back needs the tiles.
    (found,) = transfer.at(Placement((Dim(("x",), 4, 1, 1, (1, 17)),)))
    assert found.operands == (place(mesh, (16,), (("x",),)),)


@pytest.mark.parametrize("n", [13, 14, 16])
def test_padding_past_the_end_is_not_needed(n: int) -> None:
    """Of uneven tiles, what lies past the end of a rotation or of a wrap is asked of nobody."""
    mesh, x = MESHES[0], TensorType((n,), "f32")
    transfer = transfer_of(mesh, "rotate", Attributes({"amount": 2, "dimension": 0}), (x,), x)
    (found,) = transfer.at(place(mesh, (n,), (("x",),)))
    assert found.operands == (Placement((Dim(("x",), 4, 2, 2, (2, n + 2)),)),)
    transfer = transfer_of(mesh, "wrap", Attributes({"lhs": 1, "rhs": 2, "dimension": 0}), (x,), x.with_shape((n + 3,)))
    for strategy in transfer.at(Placement((Dim(("x",), 5, 0, 1),))):
        assert strategy.operands == (Placement((Dim(("x",), 5, -1, 0, (-1, n + 2)),)),)


def test_what_moves_an_operand() -> None:
    """One operand alone, as it lies: no sums of neighbours, no strides, and nothing sent to the other end."""
    mesh, x = MESHES[0], TensorType((16,), "f32")
    moving: list[tuple[str, dict[str, Any], tuple[TensorType, ...]]] = [
        ("slice", {"start_indices": (1,), "limit_indices": (15,), "strides": (1,)}, (x,)),
        ("pad", {"edge_padding_low": (1,), "edge_padding_high": (0,), "interior_padding": (0,)},
         (x, TensorType((), "f32"))),
        ("rotate", {"amount": 3, "dimension": 0}, (x,)),
        ("wrap", {"lhs": 1, "rhs": 2, "dimension": 0}, (x,)),
        ("extend", {"lhs": 1, "rhs": 2, "dimension": 0, "mode": "edge"}, (x,)),
    ]
    others: list[tuple[str, dict[str, Any], tuple[TensorType, ...]]] = [
        ("slice", {"start_indices": (0,), "limit_indices": (16,), "strides": (2,)}, (x,)),
        ("pad", {"edge_padding_low": (0,), "edge_padding_high": (0,), "interior_padding": (1,)},
         (x, TensorType((), "f32"))),
        ("concatenate", {"dimension": 0}, (x, x)),
        ("update_slice", {"start_indices": (1,)}, (x, TensorType((2,), "f32"))),
        ("reverse", {"dimensions": (0,)}, (x,)),
        ("add", {}, (x, x)),
    ]
    for expected, found in ((True, moving), (False, others)):
        for name, attrs, types in found:
            (result,) = registry.get(name).infer(Attributes(attrs), types)
            assert transfer_of(mesh, name, Attributes(attrs), types, result).moves == expected, name


def test_windows_of_dimensions_that_merge() -> None:
    """A reshape knows standard tiles alone."""
    mesh, x, y = MESHES[0], TensorType((8, 2), "f32"), TensorType((16,), "f32")
    transfer = transfer_of(mesh, "reshape", Attributes({"shape": (16,)}), (x,), y)
    plain = place(mesh, (16,), (("x",),))
    assert transfer.at(plain)
    assert not transfer.at(Placement((plain.dims[0]._replace(low=-1),)))


def test_linked_factors_may_be_sharded() -> None:
    op, x = registry.get("pad"), TensorType((8, 4), "f32")
    attributes = Attributes({"edge_padding_low": (1, 0), "edge_padding_high": (1, 0), "interior_padding": (0, 0)})
    types = (x, TensorType((), "f32"))
    result = op.infer(attributes, types)
    rule = op.factors(attributes, types, result)
    assert rule.factors[rule.results[0][0][0]].kind == PERMUTE
    reaches = op.reaches(attributes, types, result)
    assert reaches is not None and reaches[0][0] == Reach(0, -1, -1)
    joined = linked(rule, reaches)
    assert joined.operands[0][0] == joined.results[0][0]
    assert joined.factors[joined.results[0][0][0]].kind == PASS
