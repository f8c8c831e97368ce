"""Batches of classes whose dual variables can be updated at once, as no update reads what another one writes."""

from __future__ import annotations

from collections.abc import Sequence

from eggshard.selection.bounds.charges import ClassUses


def batches(classes: Sequence[ClassUses]) -> list[list[ClassUses]]:
    """The classes, in batches to be gone through in this order, or backwards: what touches the same labels keeps its
    place among itself. A batch has only classes that one slot alone uses, or none of them.
    """
    after: list[set[int]] = [set() for _ in classes]
    waits = [0] * len(classes)
    last: dict[int, int] = {}
    for i, uses in enumerate(classes):
        before: set[int] = set()
        for label in uses.touched():
            if label in last and last[label] != i:
                before.add(last[label])
            last[label] = i
        waits[i] = len(before)
        for other in before:
            after[other].add(i)
    ready: dict[bool, list[int]] = {True: [], False: []}
    for i, count in enumerate(waits):
        if not count:
            ready[classes[i].alone].append(i)
    found = []
    while any(ready.values()):
        alone = len(ready[True]) >= len(ready[False])
        some, ready[alone] = sorted(ready[alone]), []
        found.append([classes[i] for i in some])
        for i in some:
            for other in sorted(after[i]):
                waits[other] -= 1
                if not waits[other]:
                    ready[classes[other].alone].append(other)
    return found
