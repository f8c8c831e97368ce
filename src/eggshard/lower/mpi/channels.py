"""How the steps of a plan become MPI: point-to-point requests made once, or collectives of a group.

A channel is one step at fixed buffers of the rank's memory. What it needs of MPI is made with it, on all ranks in the
same order, and freed with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from eggshard.lower.mpi.datatypes import Part, datatype, joined

#: Nothing else travels on a step's communicator, and messages of a pair of ranks keep their order.
Combine = Callable[[list[np.ndarray]], np.ndarray]


class Copy(NamedTuple):
    """A part of this rank's operands that becomes a part of its results."""

    source: Part
    target: Part


class Transfer(NamedTuple):
    """A part that comes from, or goes to, another rank; its place among those of the same pair of ranks tells it apart
    from the others."""

    rank: int
    part: Part
    number: int


class Messages:
    """Pieces between single ranks: persistent requests, one for each piece.

    Rounds follow one another: what a later round receives may lie on what an earlier one received.
    """

    def __init__(
        self, comm: MPI.Comm, memory: np.ndarray, sent: Sequence[Transfer],
        rounds: Sequence[tuple[Sequence[Transfer], Sequence[Copy]]],
    ):
        self.sends = [_request(comm.Send_init, memory, t) for t in sent if t.part.elements]
        self.rounds = [
            (
                [_request(comm.Recv_init, memory, t) for t in received if t.part.elements],
                [(_view(memory, c.source), _view(memory, c.target)) for c in copies],
            )
            for received, copies in rounds
        ]

    def start(self) -> None:
        MPI.Prequest.Startall(self.sends)
        for number in range(len(self.rounds)):
            if number:
                MPI.Request.Waitall(self.rounds[number - 1][0])
            receives, copies = self.rounds[number]
            MPI.Prequest.Startall(receives)
            for source, target in copies:
                target[...] = source

    def finish(self) -> None:
        for receives, _ in self.rounds[-1:]:
            MPI.Request.Waitall(receives)
        MPI.Request.Waitall(self.sends)

    def free(self) -> None:
        for request in (*self.sends, *(r for receives, _ in self.rounds for r in receives)):
            request.Free()


class Collective:
    """One call of a collective of a group, with the datatypes that it was prepared with."""

    def __init__(self, call: Callable[[], object], types: Sequence[MPI.Datatype] = ()):
        self.call, self.types = call, types

    def start(self) -> None:
        self.call()

    def finish(self) -> None:
        pass

    def free(self) -> None:
        for each in self.types:
            each.Free()


def gathering(group: MPI.Comm, memory: np.ndarray, own: Part, parts: Sequence[Part]) -> Collective:
    """``MPI_Allgatherv``: each member's part, all of one size, at a place of its own in the result.

    parts: in the order of the group's ranks.
    """
    source = datatype(own)
    target = datatype(parts[0], own.itemsize)  # so displacements count elements
    base = min(part.first for part in parts)
    places = [(part.first - base) // own.itemsize for part in parts]
    send, receive = [memory[own.first :], 1, source], [memory[base:], [1] * len(parts), places, target]
    return Collective(lambda: group.Allgatherv(send, receive), (source, target))


def swapping(
    group: MPI.Comm, memory: np.ndarray, sent: Sequence[Sequence[Part]], received: Sequence[Sequence[Part]]
) -> Collective:
    """``MPI_Alltoallw``: parts for each member, and parts from each, in the order of the group's ranks."""
    sides, types = [], []
    for rows in (sent, received):
        base = min((part.first for row in rows for part in row), default=0)
        filled = [[part for part in row if part.elements] for row in rows]
        row_types = [joined(row, base) if row else MPI.BYTE for row in filled]
        counts = [int(bool(row)) for row in filled]
        sides.append([memory[base:], (counts, [0] * len(rows)), row_types])
        types += [t for t, row in zip(row_types, filled, strict=True) if row]
    send, receive = sides
    return Collective(lambda: group.Alltoallw(send, receive), types)


def summing(
    group: MPI.Comm, memory: np.ndarray, source: Part, target: Part, native: tuple[MPI.Op, MPI.Datatype], scatter: bool
) -> Collective:
    """``MPI_Allreduce``, or ``MPI_Reduce_scatter_block`` where each member keeps its rank's block of the operand."""
    op, type_ = native
    send = [_bytes(memory, source), source.elements, type_]
    receive = [_bytes(memory, target), target.elements, type_]
    if scatter:
        return Collective(lambda: group.Reduce_scatter_block(send, receive, op))
    return Collective(lambda: group.Allreduce(send, receive, op))


class Combining:
    """A reduction by what plans mean by it: each member combines the parts that it keeps, which it is sent by all.

    sent: what of the operand goes to each member. staged: where each member's part is put; they are combined in the
    group's order into ``target``. Where the result is on all members, ``shared`` gathers it.
    """

    def __init__(
        self, group: MPI.Comm, memory: np.ndarray, dtype: np.dtype, sent: Sequence[Part], staged: Sequence[Part],
        target: Part, order: Sequence[int], combine: Combine, shared: Collective | None,
    ):
        self.exchange = swapping(group, memory, [[p] for p in sent], [[p] for p in staged])
        self.staged = [_view(memory, staged[rank], dtype) for rank in order]
        self.target = _view(memory, target, dtype)
        self.combine, self.shared = combine, shared

    def start(self) -> None:
        self.exchange.start()
        self.target[...] = self.combine(self.staged)
        if self.shared is not None:
            self.shared.start()

    def finish(self) -> None:
        pass

    def free(self) -> None:
        self.exchange.free()
        if self.shared is not None:
            self.shared.free()


class Several:
    """Channels one after the other, as one."""

    def __init__(self, channels: Sequence[Collective | Combining]):
        self.channels = channels

    def start(self) -> None:
        for channel in self.channels:
            channel.start()

    def finish(self) -> None:
        for channel in self.channels:
            channel.finish()

    def free(self) -> None:
        for channel in self.channels:
            channel.free()
