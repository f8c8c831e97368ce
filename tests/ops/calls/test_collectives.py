"""Collectives along manual axes: shards along the axes left to the compiler go through them one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eggshard.ops import registry
from eggshard.ops.region_builder import RegionBuilder
from eggshard.placement.transfer import enumerated
from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement
from eggshard.program.program import Region
from eggshard.program.types import TensorType
from eggshard.reshard.submesh import without_axes
from eggshard.simulate.simulator import gather_from_devices, run, scatter_to_devices
from eggshard.spmd.authored import authored_program

MESH = Mesh({"f": 2, "m": 2, "g": 2}, [0, 3, 1, 2, 7, 5, 6, 4])
FREE = without_axes(MESH, ("m",))
ALONG = tuple(tuple(int(d) for d in row) for row in MESH.groups(("m",)))


def addition() -> Region:
    builder = RegionBuilder([TensorType((), "f32")] * 2)
    return builder.build(builder.add("add", (0, 1)))


#: name: attributes besides the groups, operand shape -> result shape, whether it has a region.
CASES: dict[str, tuple[dict[str, Any], tuple[int, ...], tuple[int, ...], bool]] = {
    "all_reduce": ({"use_global_device_ids": "unit"}, (4, 6), (4, 6), True),
    "reduce_scatter": ({"use_global_device_ids": "unit", "scatter_dimension": 1}, (5, 6), (5, 3), True),
    "all_gather": ({"use_global_device_ids": "unit", "all_gather_dim": 0}, (4, 6), (8, 6), False),
    "all_to_all": ({"split_dimension": 0, "concat_dimension": 2, "split_count": 2}, (4, 6, 2), (2, 6, 4), False),
    "all_to_all in place": ({"split_dimension": 0, "concat_dimension": 0, "split_count": 2}, (4, 7), (4, 7), False),
    "collective_permute": ({}, (4, 6), (4, 6), False),
}


def scattered(copies: np.ndarray, placement: Placement) -> np.ndarray:
    """What devices hold of one tensor per position along m."""
    out = np.empty((MESH.size, *placement.local_shape), copies.dtype)
    for rows, copy in zip(MESH.groups(FREE.axes), copies, strict=True):
        out[rows] = scatter_to_devices(FREE, copy, placement)
    return out


def gathered(shards: np.ndarray, shape: tuple[int, ...], placement: Placement) -> np.ndarray:
    rows = MESH.groups(FREE.axes)
    return np.stack([gather_from_devices(FREE, shards[r], shape, placement) for r in rows])


@pytest.mark.parametrize("case", CASES)
def test_every_strategy_computes_the_same(case: str) -> None:
    stated, shape, result, reduces = CASES[case]
    name = case.partition(" ")[0]
    operands, results = (TensorType(shape, "f32"),), (TensorType(result, "f32"),)
    key = "source_target_pairs" if name == "collective_permute" else "replica_groups"
    attributes = Attributes(**stated, **{key: ALONG}, result_types=results)
    regions = (addition(),) if reduces else ()
    definition = registry.get(name)
    rule = definition.factors(attributes, operands, results)
    copies = np.random.default_rng(0).integers(-9, 9, (2, *shape)).astype(np.float32)
    found = enumerated(FREE, rule, frozenset([("g", "f")])).found
    assert len(found) > 4
    want: np.ndarray | None = None
    for strategy in found:
        (source,), (target,) = strategy.operands, strategy.results
        local, after = (source.local_type(operands[0]),), (target.local_type(results[0]),)
        local_attributes = definition.localize(attributes, operands, results, local, after)
        plan = authored_program(MESH, FREE, name, local_attributes, regions, local, after)
        assert tuple(plan.types[v] for v in plan.outputs) == after
        got = gathered(run(plan, [scattered(copies, source)])[0], result, target)
        want = got if want is None else want
        np.testing.assert_array_equal(got, want, err_msg=str(strategy))
    a, b = copies
    expected = {"all_reduce": [a + b, a + b], "all_gather": [np.concatenate([a, b])] * 2,
                "collective_permute": [a * 0, a]}.get(name)
    if expected is not None:
        np.testing.assert_array_equal(want, expected)
