"""The op registry: one file per op family, all of them loaded here; `registry` answers by name."""

from eggshard.ops import (
    annotation,
    base as registry,
    collectives,
    contraction,
    control,
    convolution,
    creation,
    elementwise,
    halo,
    indexing,
    linalg,
    manual,
    movement,
    opaque,
    random,
    reduction,
    scatter,
    slicing,
    sorting,
    window_reduction,
)

#: The modules that define ops, in alphabetical order.
FAMILIES = (
    annotation,
    collectives,
    contraction,
    control,
    convolution,
    creation,
    elementwise,
    halo,
    indexing,
    linalg,
    manual,
    movement,
    opaque,
    random,
    reduction,
    scatter,
    slicing,
    sorting,
    window_reduction,
)

__all__ = ["FAMILIES", "registry"]
