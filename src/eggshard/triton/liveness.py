"""Liveness in a kernel: ops that run for their effects, and everything that these are computed from.

Values that loops carry only for themselves are dead.
"""

from __future__ import annotations

from eggshard.triton.candidates import computing
from eggshard.triton.classes import Classes
from eggshard.triton.control import Tie, ties
from eggshard.triton.kernels.ir import Kernel, Operation
from eggshard.triton.rules import has_effects


def find_live(kernel: Kernel, classes: Classes) -> set[Operation | Tie]:
    """The ops that compute tensors and run, and the ties of loops and branches whose values are needed."""
    makers: dict[int, list[Operation]] = {}
    carriers: dict[int, list[Tie]] = {}
    waiting: list[Operation | Tie] = []
    for op in computing(kernel, classes):
        tied = ties(op)
        for tie in tied or ():
            for value in tie.targets:
                if value in classes.of:
                    carriers.setdefault(classes.of[value], []).append(tie)
        if tied is None:
            for value in op.results:
                if value in classes.of:
                    makers.setdefault(classes.of[value], []).append(op)
            if has_effects(op) or any(v not in classes.of for v in op.results):
                waiting.append(op)
    live: set[Operation | Tie] = set(waiting)
    while waiting:
        found = waiting.pop()
        values = found.operands if isinstance(found, Operation) else [u.value for u in (*found.sources, *found.back)]
        for c in {classes.of[v] for v in values if v in classes.of}:
            for maker in (*makers.get(c, ()), *carriers.get(c, ())):
                if maker not in live:
                    live.add(maker)
                    waiting.append(maker)
    return live
