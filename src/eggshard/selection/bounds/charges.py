"""The dual variables of a dual ascent (`selection.bounds.dual`), as arrays over many classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from eggshard.selection.segments import Segments

#: Price, in units of the incumbent's cost, of anything that no plan cheaper than the incumbent pays.
CAP = 2.0


class ClassUses(NamedTuple):
    """How one class is used. P outs (absence last), L labels, D distinct placements that are needed, G groups of slots
    that exclude each other, M slots of all groups, J cells (placements that some slot of a group needs), K needs
    (placements that a slot needs).
    """

    #: The class's number, its first label, and the out ``[L]`` of each label, which ascend.
    number: int
    first: int
    outs: Sequence[int]
    #: Scaled conversion costs ``[P, D]``, and the placements ``[D]``.
    conversions: np.ndarray
    placements: Sequence[int]
    #: The group ``[J]`` of each cell, which ascend, and its column ``[J]`` of the conversions.
    groups: Sequence[int]
    columns: Sequence[int]
    #: Per need its cell ``[K]``, which ascend, its slot ``[K]`` and the labels that use it.
    cells: Sequence[int]
    slots: Sequence[int]
    users: Sequence[Sequence[int]]
    #: The group ``[M]`` of each slot, which ascend.
    members: Sequence[int]
    #: The slots that need not be used, and the labels that do not use them.
    idle: Sequence[int]
    rests: Sequence[Sequence[int]]
    #: What a group's consumers give up on the way up and on the way down ``[G]``: they are asked by several operands.
    pull_up: np.ndarray
    pull_down: np.ndarray

    @property
    def alone(self) -> bool:
        """Whether one slot alone uses the class, and always."""
        return len(self.members) == 1 and not self.idle

    def touched(self) -> list[int]:
        """The labels whose slack a change of charges reads and changes."""
        own = range(self.first, self.first + len(self.outs))
        return [*own, *(label for some in (*self.users, *self.rests) for label in some)]


class Start(NamedTuple):
    """Where a class begins among the charges, shares, prices and slots of its block."""

    charge: int
    share: int
    price: int
    slot: int


@dataclass
class State:
    """The charges of some classes: see `Block`."""

    charge: np.ndarray
    share: np.ndarray
    across: np.ndarray
    price: np.ndarray
    none: np.ndarray

    def arrays(self) -> tuple[np.ndarray, ...]:
        """Return all arrays of the state."""
        return self.charge, self.share, self.across, self.price, self.none

    def copy(self) -> State:
        """Return a deep copy, whose arrays share no memory with this state."""
        return State(*(array.copy() for array in self.arrays()))

    def restore(self, kept: State) -> None:
        """Overwrite the arrays in place with those of a kept state."""
        for array, old in zip(self.arrays(), kept.arrays(), strict=True):
            array[:] = old


class Block:
    """Classes whose charges change at once: dimensions as of `ClassUses`, one class behind the other.

    ``state.charge`` ``[Q]``, a row per class, group and out; ``state.share`` ``[N]`` of rows and cells, by row, and
    ``state.across`` the same by cell; what labels pay that use a slot, ``state.price`` ``[K]``, and labels that do not,
    ``state.none`` ``[M]``.
    """

    def __init__(self, classes: Sequence[ClassUses], state: State | None = None) -> None:
        """state: memory to work in, with the charges in it; else nothing is charged, and shares are equal."""
        self.classes = classes
        self.alone = all(uses.alone for uses in classes)
        outs = [_count(uses.outs) for uses in classes]
        groups = [_count(uses.members) for uses in classes]
        #: The labels ``[L]``, and their outs.
        self.labels = np.concatenate([np.arange(u.first, u.first + len(u.outs)) for u in classes])
        self.outs = Segments(_joined([u.outs for u in classes], outs))
        #: Of rows the out ``[Q]`` and the group ``[Q]``; whether there are as many rows as outs.
        self.out = _joined([np.tile(np.arange(p), g) for p, g in zip(outs, groups, strict=True)], outs)
        self.by_group = Segments(_joined(
            [np.repeat(np.arange(g), p) for p, g in zip(outs, groups, strict=True)], groups))
        self.single = max(groups) == 1
        self._pair(outs)
        needs = [len(u.columns) for u in classes]
        #: The cells ``[K]`` and slot ``[K]`` of needs; labels ``[U]`` that use the class, and their needs ``[U]``.
        self.cells = Segments(_joined([u.cells for u in classes], needs))
        slots = [len(u.members) for u in classes]
        self.slot = _joined([u.slots for u in classes], slots)
        self.users, self.needs = _ragged([some for u in classes for some in u.users])
        self.distinct = len(set(self.users.tolist())) == len(self.users)
        #: The groups ``[M]`` of slots; the slots that need not be used ``[I]``; labels ``[R]`` that do not use them,
        #: and the positions ``[R]`` in idle of the slots that they do not use.
        self.members = Segments(_joined([u.members for u in classes], groups))
        self.idle = _joined([u.idle for u in classes], slots)
        self.rest, self.rests = _ragged([some for u in classes for some in u.rests])
        self.size = np.bincount(self.members.segment)
        #: Whether a group's slots all need not be used, per row ``[Q]``.
        unused = np.zeros(len(self.members.segment), bool)
        unused[self.idle] = True
        free = np.bincount(self.members.segment[unused], minlength=len(self.size)) == self.size
        self.free = free[self.by_group.segment]
        self.any_free = bool(free.any())
        #: See `ClassUses`, per group ``[G]``; and what an out hands to each of its rows on the way up ``[O]``.
        self.pull_up = np.concatenate([u.pull_up for u in classes])
        self.pull_down = np.concatenate([u.pull_down for u in classes])
        self.give = np.repeat(1.0 / np.array(groups), outs)
        self.state = state or self._beginning()

    def _pair(self, outs: Sequence[int]) -> None:
        """Lay out the pairs of rows and cells."""
        rows, cells, turned, conversions, row, cell, pair, cost = [], [], [], [], 0, 0, 0, 0
        for uses, p in zip(self.classes, outs, strict=True):
            groups, columns = np.asarray(uses.groups), np.asarray(uses.columns)
            j, d = len(columns), uses.conversions.shape[1]
            size = np.bincount(groups)
            begin = np.concatenate(([0], np.cumsum(size)[:-1]))
            # By cell and out: the row, and the pair's position by row.
            out, at = np.arange(p)[None, :], np.arange(j)[:, None]
            group = groups[:, None]
            rows.append((row + group * p + out).ravel())
            place = p * begin[group] + out * size[group] + at - begin[group]
            turned.append((pair + place).ravel())
            cells.append(np.repeat(np.arange(cell, cell + j), p))
            conversions.append((cost + out * d + columns[:, None]).ravel())
            row, cell, pair, cost = row + p * len(size), cell + j, pair + p * j, cost + p * d
        #: By cell: its row ``[N]``, and the pair's position by row ``[N]``.
        self.row, self.turned = np.concatenate(rows), np.concatenate(turned)
        self.by_cell = Segments(np.concatenate(cells))
        back = np.empty_like(self.turned)
        back[self.turned] = np.arange(len(back))
        #: By row: its cell ``[N]``, and the conversion (of class, out and column) ``[N]``.
        self.by_row, self.cell = Segments(self.row[back]), self.by_cell.segment[back]
        self.conversion = np.concatenate(conversions)[back]
        #: Per conversion what it costs, and a cell's part of it.
        self.cost = np.concatenate([uses.conversions.ravel() for uses in self.classes])
        self.part_of_cost = 1.0 / np.bincount(self.conversion)
        impossible = self.cost[self.conversion] >= CAP
        #: The pairs whose conversion is impossible; the pairs by conversion ``[N]``, and the conversion of each.
        self.impossible = np.flatnonzero(impossible)
        self.sharing = np.argsort(self.conversion, kind="stable")
        self.by_conversion = Segments(self.conversion[self.sharing])

    def _beginning(self) -> State:
        cost = self.cost[self.conversion]
        share = cost * self.part_of_cost[self.conversion]
        share[self.impossible] = CAP
        across = share[self.turned]
        price = self.by_cell.least(across)[self.cells.segment]
        return State(np.zeros(len(self.out)), share, across, price, np.zeros(len(self.members.segment)))

    def part(self, number: int) -> Block:
        """One class of the block alone, in the block's memory."""
        at = Start(0, 0, 0, 0)
        for uses in self.classes:
            p = _count(uses.outs)
            rows, pairs = p * _count(uses.members), p * len(uses.columns)
            end = Start(at.charge + rows, at.share + pairs, at.price + len(uses.cells), at.slot + len(uses.members))
            if uses.number == number:
                s = self.state
                return Block([uses], State(
                    s.charge[at.charge : end.charge], s.share[at.share : end.share], s.across[at.share : end.share],
                    s.price[at.price : end.price], s.none[at.slot : end.slot]))
            at = end
        raise KeyError(number)

    def charged(self, charge: np.ndarray) -> np.ndarray:
        """Sum the rows' charges for each out: ``[O]``."""
        return charge if self.single else np.bincount(self.out, charge)

    def at_labels(self, values: np.ndarray) -> np.ndarray:
        """Gather the outs' values at each label: ``[L]``."""
        return values if self.outs.apart else values.take(self.outs.segment)

    def paid(self, least: np.ndarray, none: np.ndarray) -> np.ndarray:
        """What needs pay ``[K]``: a group's cells cost ``least`` together, of which slots not used pay ``none``."""
        found = least if self.cells.apart else least.take(self.cells.segment)
        if not self.members.apart:
            found = found - (self.members.add(none)[self.members.segment] - none)[self.slot]
        return found

    def prices(self) -> tuple[np.ndarray, np.ndarray]:
        """``price`` and ``none``, exact."""
        none = self.state.none.copy()
        more = (self.by_group.least(self.state.charge) - self.members.add(none)) / self.size
        none[self.idle] += more[self.members.segment[self.idle]]
        return self.paid(self.by_cell.least(self.state.charge.take(self.row) + self.state.across), none), none


def _count(numbers: Sequence[int]) -> int:
    return numbers[-1] + 1


def _joined(parts: Sequence[Sequence[int] | np.ndarray], sizes: Sequence[int]) -> np.ndarray:
    """Numbers of one class behind the other's, of which each has so many."""
    starts = np.cumsum([0, *sizes[:-1]])
    return np.concatenate([np.asarray(part, np.int64) + start for part, start in zip(parts, starts, strict=True)])


def _ragged(parts: Sequence[Sequence[int]]) -> tuple[np.ndarray, Segments]:
    """Concatenate the parts; returns the flat array and the segment (part) of each element."""
    flat = np.array([label for some in parts for label in some], np.int64)
    return flat, Segments(np.repeat(np.arange(len(parts)), np.array([len(some) for some in parts], np.int64)))
