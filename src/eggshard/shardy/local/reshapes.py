"""Reshapes of sharded tensors: the axes that may stay, so that every device reshapes its own shard."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from eggshard.shardy.local.padding.rules import groups_of_dimensions

#: Per dimension the axes that shard it, major to minor.
Axes = list[tuple[str, ...]]


def local_axes(
    shapes: tuple[Sequence[int], Sequence[int]], axes: tuple[Axes, Axes], sizes: Mapping[str, int]
) -> tuple[Axes, Axes]:
    """The axes of operand and result that can stay; sizes: of each axis.

    Seen in the flat tensor, an axis that cuts evenly puts its devices a number of elements apart. Where that is the
    same on both sides for all axes of a group of dimensions with equal products, devices hold the same elements in the
    same order. So they do where only the major dimensions of a group are cut: if unevenly, padding makes their tiles
    the same.
    """
    kept: tuple[Axes, Axes] = ([() for _ in shapes[0]], [() for _ in shapes[1]])
    for dims in groups_of_dimensions(*shapes):
        majors = [axes[side][dims[side][0]] for side in (0, 1)]
        others = [a for side in (0, 1) for d in dims[side][1:] for a in axes[side][d]]
        if majors[0] == majors[1] and not others:
            found = [{dims[side][0]: majors[side]} for side in (0, 1)]
        else:
            found = _agreeing(shapes, axes, dims, sizes)
        for side in (0, 1):
            for d, names in found[side].items():
                kept[side][d] = names
    return kept


def _agreeing(
    shapes: tuple[Sequence[int], Sequence[int]], axes: tuple[Axes, Axes], dims: tuple[list[int], list[int]],
    sizes: Mapping[str, int],
) -> list[dict[int, tuple[str, ...]]]:
    """Per side and dimension the longest major parts of the axes that have equal strides on both sides."""
    strides: list[dict[str, int]] = [{}, {}]
    for side in (0, 1):
        inner = math.prod(shapes[side][d] for d in dims[side])
        for d in dims[side]:
            count = 1
            for name in axes[side][d]:
                count *= sizes[name]
                if shapes[side][d] % count:
                    break
                strides[side][name] = inner // count
            inner //= shapes[side][d]
    good = {name for name, stride in strides[0].items() if strides[1].get(name) == stride}
    while True:
        found = [{d: _first(axes[side][d], good) for d in dims[side]} for side in (0, 1)]
        left = {name for names in found[0].values() for name in names} & {
            name for names in found[1].values() for name in names}
        if left == good:
            return found
        good = left


def _first(names: tuple[str, ...], good: set[str]) -> tuple[str, ...]:
    """The axes before the first that is not among these."""
    return names[: next((i for i, name in enumerate(names) if name not in good), len(names))]
