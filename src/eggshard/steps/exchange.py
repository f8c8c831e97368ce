"""Point-to-point redistribution: any placement to any other in collective-permutes of equal pieces, at the least bytes.

Both placements are cut to a common grid of cells. Each device misses the cells that it needs and does not hold; each
of those comes from one of the cell's holders, chosen so that loads are even; and the sends are sorted into as many
rounds as the busiest device has sends or receipts (König's theorem: a bipartite multigraph of maximal degree k is
edge-coloured with k colours). So a device receives what it misses and nothing more: no plan moves fewer bytes.

A plan says of an exchange what devices hold before and after it, along mesh axes, and what it costs. Who sends what to
whom is worked out device by device when the plan is run or written as a device program.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np

from eggshard.placement.edge_colouring import colour_edges
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement
from eggshard.program.types import TensorType
from eggshard.steps.piece_steps import Exchange, Pieces, PieceTables
from eggshard.steps.steps import Action

#: Bound below which cell numbers must stay to fit in 64 bits.
_NUMBERS = 1 << 62


class Blocks(NamedTuple):
    """One dimension of a tensor in blocks of one size, of which every device holds one.

    The block's number is a digit of the device's mixed-radix position along ``axes``: the position, divided by
    ``minor``, modulo ``blocks``.
    """

    axes: tuple[str, ...]
    blocks: int
    size: int
    minor: int = 1

    def number(self, mesh: Mesh) -> np.ndarray:
        """``[devices]``: the number of the block that each device holds."""
        out: np.ndarray = mesh.index(self.axes) // self.minor % self.blocks
        return out


#: A box of a tensor on every device: its blocks along each dimension.
Boxes = tuple[Blocks, ...]


@dataclass(frozen=True, slots=True)
class BoxExchange(Action):
    """A point-to-point redistribution from boxes that devices hold of a tensor of shape ``whole`` to boxes they need.

    over: the axes along which data travels. Devices that hold the same send to those at the same place along the axes
    of neither side. cells: pieces received by the busiest device. rounds: collective-permutes. Both are counted where
    the exchange is stated: `tables` has as many.
    """

    whole: tuple[int, ...]
    source: Boxes
    target: Boxes
    over: tuple[str, ...]
    cells: int
    rounds: int
    kind: ClassVar[str] = "exchange"

    @property
    def piece(self) -> tuple[int, ...]:
        """The local shape of a cell."""
        return tuple(max(1, math.gcd(a.size, b.size)) for a, b in zip(self.source, self.target, strict=True))

    @property
    def shape(self) -> tuple[int, ...]:
        """The local shape of the result."""
        return tuple(blocks.size for blocks in self.target)

    @property
    def axes(self) -> tuple[str, ...]:
        return self.over

    @property
    def messages(self) -> int:
        return self.rounds

    @property
    def collectives(self) -> dict[str, int]:
        return {"collective-permute": self.rounds} if self.rounds else {}

    def result(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        return (operands[0].with_shape(self.shape),)

    def received(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> np.ndarray:
        return missing_cells(mesh, self.whole, self.source, self.target) * float(self._bytes(operands))

    def busiest(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> float:
        return float(self.cells * self._bytes(operands))

    def serial_bytes(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> float:
        return float(self.rounds * self._bytes(operands))

    def tables(self, mesh: Mesh) -> PieceTables:
        """What every device does."""
        return _tables(mesh, self.whole, self.source, self.target)

    def listed(self, mesh: Mesh) -> Exchange:
        """Return the exchange with its pieces listed device by device."""
        return Exchange.of(mesh, self.piece, self.shape, self.tables(mesh), self.over)

    def _bytes(self, operands: tuple[TensorType, ...]) -> int:
        return operands[0].with_shape(self.piece).bytes


#: A point-to-point redistribution in either form: listed device by device, or stated by boxes.
PieceExchange = Exchange | BoxExchange


def exchange(
    mesh: Mesh, shape: tuple[int, ...], source: Placement, target: Placement, over: tuple[str, ...], cells: int,
    rounds: int,
) -> BoxExchange:
    """The exchange from ``source`` to ``target``, of a tensor of this global shape (`BoxExchange`).

    Partial placements must be partial over the same axes: their partial values travel like shards of further
    dimensions.
    """
    held, needed = (
        tuple(Blocks(d.axes, mesh.count(d.axes), d.tile) for d in placement.dims) for placement in (source, target)
    )
    return BoxExchange(shape, held, needed, over, cells, rounds)


def missing_cells(mesh: Mesh, whole: tuple[int, ...], source: Boxes, target: Boxes) -> np.ndarray:
    """``[devices]``: the cells of the tensor that each device needs and does not hold."""
    needed, common = np.ones((2, mesh.size), np.int64)
    for n, held, wanted in zip(whole, source, target, strict=True):
        cell = max(1, math.gcd(held.size, wanted.size))
        end = -(-n // cell)
        (low, high), (first, last) = (
            (start, np.minimum(start + blocks.size // cell, end))
            for blocks in (held, wanted) for start in [blocks.number(mesh) * (blocks.size // cell)]
        )
        needed *= np.maximum(last - first, 0)
        common *= np.maximum(np.minimum(high, last) - np.maximum(low, first), 0)
    return needed - common


@lru_cache(maxsize=16)
def _tables(mesh: Mesh, whole: tuple[int, ...], source: Boxes, target: Boxes) -> PieceTables:
    rank = len(whole)
    held_size, size = (np.array([blocks.size for blocks in side], int) for side in (source, target))
    cell = np.maximum(1, np.gcd(held_size, size))
    held_size, size, end = held_size // cell, size // cell, -(-np.array(whole, int) // cell)
    number = np.zeros((2, mesh.size, rank), np.int64)
    for column, ends in enumerate(zip(source, target, strict=True)):
        number[:, :, column] = [blocks.number(mesh) for blocks in ends]
    held, first = number[0] * held_size, number[1] * size
    offsets = np.indices(tuple(size)).reshape(rank, -1).T
    cells = first[:, None, :] + offsets
    here = (cells >= held[:, None, :]).all(-1) & (cells < (held + held_size)[:, None, :]).all(-1)
    exists = (cells < end).all(-1)

    receiver, which = np.nonzero(exists & ~here)
    wanted = cells[receiver, which]
    used = {a for blocks in (*source, *target) for a in blocks.axes}
    sender = _assign(mesh.index(a for a in mesh.axes if a not in used), receiver, wanted // held_size, number[0])
    sent = Pieces(sender, receiver, (wanted - held[sender]) * cell, offsets[which] * cell)
    keeper, which = np.nonzero(exists & here)
    kept = Pieces(keeper, keeper, (cells[keeper, which] - held[keeper]) * cell, offsets[which] * cell)
    nth = np.arange(len(keeper)) - np.searchsorted(keeper, keeper)
    return PieceTables(_rounds(sent, colour_edges(sender, receiver, mesh.size)), _rounds(kept, nth))


def _rounds(pieces: Pieces, number: np.ndarray) -> tuple[Pieces, ...]:
    """Pieces by the number of their round, sorted by sender."""
    order = np.lexsort([pieces.senders, number])
    ends = np.nonzero(np.diff(number[order]))[0] + 1
    return tuple(Pieces(*(a[rows] for a in pieces)) for rows in np.split(order, ends) if len(rows))


def _assign(rest: np.ndarray, receiver: np.ndarray, blocks: np.ndarray, held: np.ndarray) -> np.ndarray:
    """A sender for each wanted cell, of the box of these blocks: its holders at the receiver's place take turns.

    rest ``[devices]``: a number for the place. held ``[devices, rank]``: the blocks of each device's box.
    """
    keys = np.concatenate([np.column_stack([held, rest]), np.column_stack([blocks, rest[receiver]])])
    numbers = np.unique(_row_numbers(keys), return_inverse=True)[1].reshape(-1)
    team_of, team = numbers[: len(rest)], numbers[len(rest) :]
    members = np.argsort(team_of, kind="stable").reshape(int(team_of.max()) + 1, -1)
    order = np.argsort(team, kind="stable")
    turn = np.empty(len(team), int)
    turn[order] = np.arange(len(team)) - np.searchsorted(team[order], team[order])
    sender: np.ndarray = members[team, turn % members.shape[1]]
    return sender


def _row_numbers(rows: np.ndarray) -> np.ndarray:
    """A number per row, equal for equal rows and in their order; rows hold no negative numbers."""
    out, most = np.zeros(len(rows), np.int64), 1
    for column in rows.T:
        size = int(column.max(initial=0)) + 1
        if most * size > _NUMBERS:
            out = np.unique(out, return_inverse=True)[1].reshape(-1)
            column = np.unique(column, return_inverse=True)[1].reshape(-1)
            most, size = int(out.max(initial=0)) + 1, int(column.max(initial=0)) + 1
        out, most = out * size + column, most * size
    return out
