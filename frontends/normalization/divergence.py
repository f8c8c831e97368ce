"""Divergence analysis: finds loops and branches of a manual computation whose control flow may differ between devices.

The compiler must not add communication to such a body: devices on another path would never answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from eggshard.ops import registry
from eggshard.program.attributes import Attributes
from eggshard.program.program import Op, Region

#: The attribute that marks a loop or a branch.
DIVERGES = "diverges"


def mark_divergence(attributes: Attributes, region: Region) -> Region:
    """A manual computation's body in which loops and branches that may diverge along its manual axes are marked.

    A value may differ between devices along manual axes if it depends on an operand that is cut along them, on the
    device's number, or on an op that eggshard does not know; a sum or a gather over all of them is the same everywhere.
    """
    return _marked_body(attributes, region, (False,) * len(region.inputs), ())


def _marked_body(attributes: Attributes, region: Region, varying: Iterable[bool], outer: tuple[str, ...]) -> Region:
    axes = (*outer, *attributes["manual_axes"])
    cut = (any(a.name in axes for a in s.axes) or s.device is not None for s in attributes["in_shardings"])
    whole = attributes["mesh"].axes
    count = math.prod(whole[a] for a in axes if a in whole)
    given = {v for v, a, b in zip(region.inputs, cut, varying, strict=True) if a or b}
    return _Marker(axes, count).region(region, given)[0]


class _Marker:
    def __init__(self, axes: tuple[str, ...], devices: int):
        self.axes, self.devices = axes, devices

    def region(self, region: Region, varying: set[int]) -> tuple[Region, list[bool]]:
        """The marked region, and which of its outputs vary."""
        varying, ops = set(varying), []
        for op in region.ops:
            given = [v in varying for v in op.operands]
            marked, vary = self.op(op, given)
            ops.append(marked)
            varying.update(v for v, yes in zip(op.results, vary, strict=True) if yes)
        return replace(region, ops=tuple(ops)), [v in varying for v in region.outputs]

    def op(self, op: Op, given: list[bool]) -> tuple[Op, list[bool]]:
        """The marked op, and which of its results vary."""
        match op.name:
            case "while":
                return self._loop(op, given)
            case "case" | "if":
                found = [self._inside(r, given[1:]) for r in op.regions]
                vary = [given[0] or any(column) for column in zip(*(v for _, v in found), strict=True)]
                return self._with(op, [r for r, _ in found], given[0]), vary
            case "manual_computation":
                body = _marked_body(op.attributes, op.regions[0], given, self.axes)
                return replace(op, regions=(body,)), [any(given) or _depends_on_device(body)] * len(op.results)
            case "all_reduce" | "all_gather" if self._over_all(op):
                return op, [False] * len(op.results)
        known = registry.is_pure(op.name, op.regions) and not op.name.startswith(("opaque", "custom_call"))
        fresh = not known or any(map(_depends_on_device, op.regions)) or op.name in _PER_DEVICE
        return op, [any(given) or fresh] * len(op.results)

    def _loop(self, op: Op, given: list[bool]) -> tuple[Op, list[bool]]:
        condition, body = op.regions
        carried = list(given)
        while True:
            test, (diverges,) = self._inside(condition, carried)
            step, after = self._inside(body, carried)
            grown = [a or b or diverges for a, b in zip(carried, after, strict=True)]
            if grown == carried:
                return self._with(op, [test, step], diverges), carried
            carried = grown

    def _inside(self, region: Region, given: list[bool]) -> tuple[Region, list[bool]]:
        return self.region(region, {v for v, yes in zip(region.inputs, given, strict=True) if yes})

    def _with(self, op: Op, regions: list[Region], diverges: bool) -> Op:
        attributes = op.attributes.updated(**{DIVERGES: True}) if diverges else op.attributes
        return replace(op, regions=tuple(regions), attributes=attributes)

    def _over_all(self, op: Op) -> bool:
        """Whether each group has a device at every position along the manual axes."""
        groups = op.attributes["replica_groups"]
        return all(sum(d >= 0 for d in group) == self.devices for group in groups)


#: Ops that give devices different results from the same operands.
_PER_DEVICE = ("partition_id", "reduce_scatter", "all_to_all", "collective_permute", "rng")


def _depends_on_device(region: Region) -> bool:
    return any(op.name in _PER_DEVICE or any(map(_depends_on_device, op.regions)) for op in region.ops)
