"""How much of each op a fusion computes: an element only where something takes it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from eggshard.hlo.text import Instruction, shapes_of

#: What is computed whole wherever it stands.
WHOLE = ("convolution", "dot", "reduce", "reduce-window", "scatter", "sort")
SLICES = ("dynamic-slice", "gather", "slice")


def computed_parts(inside: Mapping[str, Instruction]) -> dict[str, float]:
    """Per instruction of a fusion the part of its elements that is read or computed.

    Of what is only sliced that is the slices, and nothing of what is updated in place.
    """
    sizes = {j.name: sum(math.prod(extents) for _, extents in shapes_of(j.shape)) for j in inside.values()}
    wanted = dict.fromkeys(inside, 0)
    for j in reversed(list(inside.values())):
        if j.root or j.opcode in WHOLE:
            wanted[j.name] = sizes[j.name]
        for position, name in enumerate(j.operands):
            if name not in inside or (j.opcode == "dynamic-update-slice" and position == 0):
                continue
            as_many = (j.opcode in SLICES and position == 0) or sizes[name] == sizes[j.name]
            wanted[name] = min(sizes[name], wanted[name] + (wanted[j.name] if as_many else sizes[name]))
    return {name: wanted[name] / size if size else 0.0 for name, size in sizes.items()}
