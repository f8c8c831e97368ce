"""Shifted tiles: where ops leave them, and reductions over them against the whole op."""

from __future__ import annotations

import random

import numpy as np
import pytest

from eggshard.ops import registry
from eggshard.ops.base import FactorRule
from eggshard.ops.windowing import Reaches
from eggshard.placement.grids import left_on, reduced_on
from eggshard.placement.transfer import enumerated
from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Dim, Placement
from eggshard.program.types import TensorType
from eggshard.simulate.simulator import run
from eggshard.simulate.window_simulation import scatter_windows
from eggshard.steps.assemble import Assembler
from eggshard.steps.steps import Local

MESH = Mesh({"x": 4})


def tiles(tile: int, shift: int, columns: int = 3) -> Placement:
    return Placement((Dim(("x",), tile, shift, shift), Dim((), columns)))


def rule_of(name: str, shape: tuple[int, ...], **attributes: object) -> tuple[FactorRule, Reaches, tuple[int, ...]]:
    op, attrs, types = registry.get(name), Attributes(attributes), (TensorType(shape, "i32"),)
    results = op.infer(attrs, types)
    reaches = op.reaches(attrs, types, results) or ((None,) * len(shape),)
    return op.factors(attrs, types, results), reaches, results[0].shape


def test_where_ops_leave_tiles() -> None:
    """A slice begins later in the tensor, so its tiles begin earlier in the slice."""
    cut = rule_of("slice", (16, 3), start_indices=(3, 0), limit_indices=(15, 3), strides=(1, 1))
    assert left_on(*cut[:2], 0, tiles(4, 0), cut[2]) == tiles(4, -3)
    negated = rule_of("negate", (12, 3))
    assert left_on(*negated[:2], 0, tiles(4, -3), negated[2]) == tiles(4, -3)
    turned = rule_of("transpose", (12, 3), permutation=(1, 0))
    assert left_on(*turned[:2], 0, tiles(4, -3), turned[2]) == Placement(tiles(4, -3).dims[::-1])
    for strided in (rule_of("slice", (16, 3), start_indices=(0, 0), limit_indices=(16, 3), strides=(2, 1)),
                    rule_of("rotate", (16, 3), amount=2, dimension=0)):
        assert left_on(*strided[:2], 0, tiles(4, 0), strided[2]) is None


@pytest.mark.parametrize("monoid", ["add", "max", "min", "mul"])
@pytest.mark.parametrize("seed", range(3))
def test_reductions_over_shifted_tiles(monoid: str, seed: int) -> None:
    """Every index counts once; tiles that leave one out are refused."""
    rng, reduced = random.Random(seed), 0
    op, attributes = registry.get("reduce"), Attributes({"dimensions": (0,), "monoid": monoid})
    for _ in range(30):
        n, tile, shift = rng.randint(4, 17), rng.randint(2, 6), rng.randint(-6, 2)
        types = (TensorType((n, 3), "i32"),)
        results = op.infer(attributes, types)
        rule = op.factors(attributes, types, results)
        (base,) = [s for s in enumerated(MESH, rule).found if s.operands[0].dims[0].axes]
        found = reduced_on(MESH, rule, base, 0, tiles(tile, shift))
        if tiles(tile, shift) == base.operands[0]:
            continue
        assert (found is not None) == (shift <= 0 and 4 * tile + shift >= n), (n, tile, shift)
        if found is None:
            continue
        data = np.random.default_rng(seed).integers(-9, 9, (n, 3)).astype(np.int32)
        assembler = Assembler(MESH)
        values = assembler.mask([assembler.input(found.operands[0].local_type(types[0]))], found)
        plan = assembler.build(assembler.emit(Local("reduce", attributes, results), tuple(values)))
        (parts,) = run(plan, [scatter_windows(MESH, data, found.operands[0])])
        (want,) = op.evaluate(attributes, [data])
        (got,) = op.evaluate(attributes, [np.asarray(parts)])
        np.testing.assert_array_equal(got, want)
        reduced += 1
    assert reduced
