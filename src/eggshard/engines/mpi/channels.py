"""Channels, which carry out steps of a plan as MPI: persistent point-to-point requests, or collectives of a group.

A channel is one step at fixed buffers of the rank's memory. What it needs of MPI is made with it, on all ranks in the
same order, and freed with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from mpi4py import MPI

from eggshard.engines.mpi.datatypes import Part, datatype, joined
from eggshard.engines.ranks.traffic import box_of

Combine = Callable[[list[np.ndarray]], np.ndarray]


class Messages:
    """Pieces between single ranks: persistent requests, one for all that goes one way between two ranks.

    sent, received: by rank the parts that go there, and where parts from there are to be. copies: parts of this rank's
    operands that become parts of its results. before: called first, to fill results with what they hold besides.
    """

    def __init__(
        self, comm: MPI.Comm, memory: np.ndarray, sent: Mapping[int, Sequence[Part]],
        received: Mapping[int, Sequence[Part]], copies: Sequence[tuple[Part, Part]], before: Callable[[], None],
    ):
        self.before = before
        self.sends = [_request(comm.Send_init, memory, rank, parts) for rank, parts in sent.items()]
        self.receives = [_request(comm.Recv_init, memory, rank, parts) for rank, parts in received.items()]
        self.copies = [(_view(memory, source), _view(memory, target)) for source, target in copies]

    def start(self) -> None:
        self.before()
        MPI.Prequest.Startall(self.receives)  # a message that is awaited goes where it belongs at once
        MPI.Prequest.Startall(self.sends)
        for source, target in self.copies:
            target[...] = source

    def finish(self) -> None:
        MPI.Request.Waitall([*self.receives, *self.sends])

    def free(self) -> None:
        for request in (*self.sends, *self.receives):
            request.Free()


class Collective:
    """Calls of collectives of groups one after the other, with the datatypes that they were prepared with."""

    def __init__(self, calls: Sequence[Callable[[], object]] = (), types: Sequence[MPI.Datatype] = ()):
        self.calls, self.types = calls, types

    def start(self) -> None:
        for call in self.calls:
            call()

    def finish(self) -> None:
        pass

    def free(self) -> None:
        for each in self.types:
            each.Free()


def together(collectives: Sequence[Collective]) -> Collective:
    """Collectives one after the other, as one."""
    return Collective([call for each in collectives for call in each.calls],
                      [type_ for each in collectives for type_ in each.types])


def gathering(group: MPI.Comm, memory: np.ndarray, own: Part, parts: Sequence[Part]) -> Collective:
    """``MPI_Allgatherv``: each member's part, all of one size, at a place of its own in the result.

    parts: in the order of the group's ranks.
    """
    source = datatype(own)
    target = datatype(parts[0], own.itemsize)  # so displacements count elements
    base = min(part.first for part in parts)
    places = [(part.first - base) // own.itemsize for part in parts]
    send, receive = [memory[own.first :], 1, source], [memory[base:], [1] * len(parts), places, target]
    return Collective([lambda: group.Allgatherv(send, receive)], (source, target))


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
    return Collective([lambda: group.Alltoallw(send, receive)], types)


def summing(
    group: MPI.Comm, memory: np.ndarray, source: Part, target: Part, native: tuple[MPI.Op, MPI.Datatype], scatter: bool
) -> Collective:
    """``MPI_Allreduce``, or ``MPI_Reduce_scatter_block`` where each member keeps its rank's block of the operand."""
    op, type_ = native
    send = [_bytes(memory, source), target.elements, type_]  # of as many such blocks as there are members
    receive = [_bytes(memory, target), target.elements, type_]
    if scatter:
        return Collective([lambda: group.Reduce_scatter_block(send, receive, op)])
    return Collective([lambda: group.Allreduce(send, receive, op)])


def sharing(group: MPI.Comm, memory: np.ndarray, parts: Sequence[Part]) -> Collective:
    """``MPI_Allgatherv`` in place: each member has its own part of a result, which are blocks of elements."""
    whole = parts[0]._replace(box=((0, parts[0].shape[0]),))
    element = datatype(whole._replace(shape=(), box=()))
    counts, places = [p.elements for p in parts], [p.box[0][0] for p in parts]
    receive = [_bytes(memory, whole), counts, places, element]
    return Collective([lambda: group.Allgatherv(MPI.IN_PLACE, receive)], (element,))


def combining(
    group: MPI.Comm, memory: np.ndarray, dtype: np.dtype, sent: Sequence[Part], staged: Sequence[Part], target: Part,
    combine: Combine,
) -> Collective:
    """A reduction by what plans mean by it: each member combines the parts that it keeps, which all send it.

    sent: what of the operand goes to each member. staged: where each member's part is put, from where they are
    combined, in the group's order, into ``target``.
    """
    exchange = swapping(group, memory, [[p] for p in sent], [[p] for p in staged])
    result = _view(memory, target, dtype)
    parts = [_view(memory, part, dtype).reshape(result.shape) for part in staged]

    def combined() -> None:
        result[...] = combine(parts)

    return Collective([*exchange.calls, combined], exchange.types)


def _request(
    init: Callable[..., MPI.Prequest], memory: np.ndarray, rank: int, parts: Sequence[Part]
) -> MPI.Prequest:
    """A persistent request of the parts as they lie."""
    base = min(part.first for part in parts)
    type_ = joined(parts, base)
    request = init([memory[base:], 1, type_], rank)
    type_.Free()  # MPI keeps it as long as the request
    return request


def _bytes(memory: np.ndarray, part: Part) -> np.ndarray:
    """The bytes of a part that is one block."""
    return memory[part.first : part.first + part.elements * part.itemsize]


def _view(memory: np.ndarray, part: Part, dtype: np.dtype | None = None) -> np.ndarray:
    """The part as an array; of elements of any type of its size where none is given."""
    dtype = _MOVED[part.itemsize] if dtype is None else dtype
    size = part.itemsize * math.prod(part.shape)
    array = memory[part.offset : part.offset + size].view(dtype).reshape(part.shape)
    return box_of(array, part.box)


#: What stands for elements that are only copied, by their bytes.
_MOVED = {n: np.dtype(name) for n, name in ((1, "u1"), (2, "u2"), (4, "u4"), (8, "u8"), (16, "c16"))}
