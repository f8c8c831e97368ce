"""Point-to-point steps: collective-permutes of equal pieces that together make up the new shards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType
from eggshard.steps.steps import Action, Pairs, received_by_pairs

#: The number of first devices that enter the hash of a step.
_HASHED = 16


class Pieces(NamedTuple):
    """Equal pieces that devices send at the same time, each at most one: who sends to whom, ``[pieces]``.

    source_starts, target_starts ``[pieces, rank]``: a piece's corner in the sender's old and in the receiver's new
    shard.
    """

    senders: np.ndarray
    receivers: np.ndarray
    source_starts: np.ndarray
    target_starts: np.ndarray

    @property
    def pairs(self) -> np.ndarray:
        """``[pieces, 2]``: senders and receivers."""
        return np.column_stack([self.senders, self.receivers])


class PieceTables(NamedTuple):
    """What all devices do in an exchange: the pieces of each collective-permute, and those that stay where they are."""

    sent: tuple[Pieces, ...]
    kept: tuple[Pieces, ...]


@dataclass(frozen=True, slots=True)
class Round:
    """One collective-permute of equal pieces: who sends to whom, and per device where a piece is cut and put.

    ``source_starts[device]`` and ``target_starts[device]`` are the piece's corner in the sender's and in the
    receiver's local array (rows of devices that take no part are zeros and unused).
    """

    pairs: Pairs
    source_starts: tuple[tuple[int, ...], ...]
    target_starts: tuple[tuple[int, ...], ...]

    def __hash__(self) -> int:
        """Hash the first devices' pieces only: rounds that agree there are mostly equal, and there may be thousands."""
        first = (rows[:_HASHED] for rows in (self.pairs, self.source_starts, self.target_starts))
        return hash((len(self.pairs), *first))

    @classmethod
    def of(cls, mesh: Mesh, pieces: Pieces) -> Round:
        """Build a round from arrays of pieces."""
        starts = np.zeros((2, mesh.size, pieces.source_starts.shape[1]), int)
        starts[0, pieces.senders], starts[1, pieces.receivers] = pieces.source_starts, pieces.target_starts
        source, target = (tuple(map(tuple, rows)) for rows in starts.tolist())
        return cls(tuple(map(tuple, pieces.pairs.tolist())), source, target)

    @property
    def pieces(self) -> Pieces:
        """Return the round's pieces as arrays."""
        senders, receivers = np.array(self.pairs, int).reshape(-1, 2).T
        source, target = (np.array(rows, int) for rows in (self.source_starts, self.target_starts))
        return Pieces(senders, receivers, source[senders], target[receivers])


@dataclass(frozen=True, slots=True)
class Exchange(Action):
    """A listed point-to-point redistribution: rounds permute equal pieces, and those received make up the new shard.

    ``local`` lists pieces that stay on their device as rounds without communication (pairs are (i, i)).
    """

    piece: tuple[int, ...]
    shape: tuple[int, ...]
    rounds: tuple[Round, ...]
    local: tuple[Round, ...] = ()
    over: tuple[str, ...] = ()
    kind: ClassVar[str] = "exchange"

    @classmethod
    def of(
        cls, mesh: Mesh, piece: tuple[int, ...], shape: tuple[int, ...], tables: PieceTables, over: tuple[str, ...]
    ) -> Exchange:
        """The exchange of these pieces."""
        sent, kept = (tuple(Round.of(mesh, pieces) for pieces in part) for part in tables)
        return cls(piece, shape, sent, kept, over)

    @property
    def axes(self) -> tuple[str, ...]:
        return self.over

    @property
    def messages(self) -> int:
        return len(self.rounds)

    @property
    def collectives(self) -> dict[str, int]:
        return {"collective-permute": self.messages} if self.messages else {}

    def tables(self, mesh: Mesh) -> PieceTables:
        """The pieces as arrays."""
        return PieceTables(*(tuple(each.pieces for each in part) for part in (self.rounds, self.local)))

    def result(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        return (operands[0].with_shape(self.shape),)

    def received(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> np.ndarray:
        size = operands[0].with_shape(self.piece).bytes
        return sum((received_by_pairs(mesh, r.pairs, size) for r in self.rounds), np.zeros(mesh.size))

    def serial_bytes(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> float:
        return float(len(self.rounds) * operands[0].with_shape(self.piece).bytes)
