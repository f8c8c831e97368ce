"""Random modules for propagation: what it may meet, and without what it would take away."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tests.shardy.modules import random_module

from eggshard.shardy.module import parsed
from eggshard.shardy.traits import is_pure, is_terminator

OPS = (
    "elementwise", "dot", "reduce", "cholesky", "sort", "custom_call", "transpose", "reshape", "broadcast", "slice",
    "pad", "concatenate", "reverse", "dynamic_slice", "dynamic_update_slice", "iota", "gather", "reduce_window",
    "convolution",
)


class _Axes(dict[str, int]):
    """A mesh that is the same for the same text."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))


#: What shardings meet on: many ops with few of them stated, conflicts included.
PLAIN: dict[str, Any] = dict(families=OPS, length=12, uneven=True, stated=0.25, open=0.7, replicated=True,
                             constraints=True, scalars=True)
#: Sub-axes, through reshapes above all.
SUB_AXES: dict[str, Any] = dict(families=("reshape", "transpose", "elementwise", "broadcast", "dot"), length=14,
                                uneven=True, sub_axes=True, stated=0.2, open=0.9, mesh=_Axes({"x": 4, "y": 6, "z": 2}))
#: Loops, branches, barriers, manual and named computations, as they are before import.
REGIONS: dict[str, Any] = dict(length=8, stated=0.25, open=0.6, constraints=True, groups=True, scalars=True,
                               regions=("while", "case", "barrier", "manual"), unreduced=True)
#: Functions that call each other.
CALLS: dict[str, Any] = dict(length=6, stated=0.25, open=0.6, functions=3, calls=True, constants=True, groups=True)


def modules(seeds: int, **features: Any) -> list[str]:
    """So many modules without ops whose results nobody uses."""
    return [_module(seed, tuple(features.items())) for seed in range(seeds)]


@lru_cache(maxsize=512)
def _module(seed: int, features: tuple[tuple[str, Any], ...]) -> str:
    return alive(random_module(seed, **dict(features)))


def alive(text: str) -> str:
    """The module without dead ops. Propagation takes them away; jaxlib's with priorities aborts if they had some."""
    with parsed(text) as module:
        for op in reversed(module.walk()):
            pure = bool(op.results) and not is_terminator(op) and is_pure(op)
            if pure and not any(True for result in op.results for _ in result.uses):
                op.erase()
        return module.text()
