"""What one class charges its users in a dual ascent (`extract.dual`), as arrays."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from eggshard.extract.segments import Segments

#: What no plan cheaper than the incumbent pays costs this in units of the incumbent, for every slot alone.
CAP = 2.0


@dataclass
class ChargedClass:
    """What one class charges. P outs (absence last), L labels, G groups of slots that exclude each other, M slots of
    all groups, J cells (placements that some slot of a group needs), K needs (placements that a slot needs), U uses.
    """

    #: The class's number; where its labels lie, which are ordered by out; outs ``[L]``.
    number: int
    labels: slice
    outs: Segments
    #: Scaled conversion costs ``[P, D]`` to the distinct placements; the column ``[J]`` of each cell; cells by column,
    #: a permutation ``[J]``, and their columns ``[J]``; the groups ``[J]`` of cells.
    conversions: np.ndarray
    column: np.ndarray
    order: np.ndarray
    columns: Segments
    groups: Segments
    #: The placement ``[D]`` of each column.
    placements: np.ndarray
    #: The cells ``[K]`` and slot ``[K]`` of needs.
    cells: Segments
    slot: np.ndarray
    #: Labels ``[U]`` that use the class, and their needs ``[U]``.
    users: np.ndarray
    needs: Segments
    #: The groups ``[M]`` of slots; the slots that need not be used ``[I]``; labels ``[R]`` that do not use them, and
    #: the positions ``[R]`` in idle of the slots that they do not use.
    members: Segments
    idle: np.ndarray
    rest: np.ndarray
    rests: Segments
    #: Whether a group need not be used ``[G]``.
    free: np.ndarray
    #: What a group's consumers give up on the way up and on the way down ``[G]``: they are asked by several operands.
    pull_up: np.ndarray
    pull_down: np.ndarray
    charge: np.ndarray = field(init=False)
    share: np.ndarray = field(init=False)
    #: What labels pay that use a slot ``[K]``, and labels that do not ``[M]``.
    price: np.ndarray = field(init=False)
    none: np.ndarray = field(init=False)
    #: Whether a conversion to a cell's placement can be ``[P, J]``; cells per column ``[D]``; slots per group ``[G]``;
    #: whether a label uses the class at most once.
    possible: np.ndarray = field(init=False)
    count: np.ndarray = field(init=False)
    size: np.ndarray = field(init=False)
    distinct: bool = field(init=False)
    #: Whether one slot alone uses the class, and always.
    alone: bool = field(init=False)

    def __post_init__(self) -> None:
        cost = self.conversions[:, self.column]
        self.possible = cost < CAP
        self.count = np.bincount(self.column, minlength=self.conversions.shape[1])
        self.size = np.bincount(self.members.segment)
        self.distinct = len(np.unique(self.users)) == len(self.users)
        self.alone = len(self.members.segment) == 1 and not len(self.idle)
        self.charge = np.zeros((len(self.outs), len(self.groups)))
        self.share = np.where(self.possible, cost / self.count[self.column], cost)
        self.none = np.zeros(len(self.members.segment))
        self.price = self.share.min(axis=0)[self.cells.segment]

    def paid(self, least: np.ndarray, none: np.ndarray) -> np.ndarray:
        """What needs pay ``[K]``: a group's cells cost ``least`` together, of which slots not used pay ``none``."""
        found: np.ndarray = least[self.cells.segment]
        if not self.members.apart:
            found = found - (self.members.add(none)[self.members.segment] - none)[self.slot]
        return found

    def prices(self) -> tuple[np.ndarray, np.ndarray]:
        """``price`` and ``none``, exact."""
        none = self.none.copy()
        more = (self.charge.min(axis=0) - self.members.add(none)) / self.size
        none[self.idle] += more[self.members.segment[self.idle]]
        return self.paid((self.charge[:, self.groups.segment] + self.share).min(axis=0), none), none
