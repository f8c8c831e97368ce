"""One rank's side of the engine: steps as channels on its memory, and what all ranks must agree on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from mpi4py import MPI

from eggshard.engines.mpi.channels import (
    Collective,
    Messages,
    combining,
    gathering,
    sharing,
    summing,
    swapping,
    together,
)
from eggshard.engines.mpi.datatypes import Part
from eggshard.engines.mpi.reductions import scheme
from eggshard.engines.ranks.communicator import Buffer, Channel
from eggshard.engines.ranks.runner import fill_outside
from eggshard.engines.ranks.traffic import Box, Piece, Reduction, Traffic
from eggshard.errors import VerificationError
from eggshard.program.types import TensorType, numpy_dtype

#: Where a step's scratch for one of its reductions begins, in bytes from the start of the memory.
Staged = Callable[[str, int], int]


class MpiCommunicator:
    """Rank r is logical device r. ``comm`` is the engine's own; ``memory`` this rank's slice of the workspace."""

    def __init__(self, comm: MPI.Intracomm, memory: np.ndarray, staged: Staged):
        self.comm, self.memory, self.staged = comm, memory, staged
        self._groups: dict[tuple[int, ...], MPI.Intracomm] = {}
        self._channels: list[Messages | Collective] = []

    @property
    def device(self) -> int:
        """The rank."""
        return self.comm.rank

    def prepare(
        self, name: str, traffic: Traffic, operands: tuple[Buffer, ...], results: tuple[Buffer, ...]
    ) -> Channel:
        """A channel for a step at these buffers; see `Communicator`."""
        channel: Messages | Collective
        if traffic.reductions:
            channel = together([
                self._reduction(name, i, r, operands[r.operand], results[r.result])
                for i, r in enumerate(traffic.reductions) if operands[r.operand].type.elements
            ])
        elif traffic.group:
            elements = any(p.elements for p in map(_target(results), traffic.received))
            channel = self._collective(traffic, operands, results) if elements else Collective()
        else:
            channel = self._messages(traffic, operands, results)
        self._channels.append(channel)
        return channel

    def agree(self, number: int, what: str) -> None:
        """Compare a number with that of all ranks; VerificationError on all of them if it differs."""
        numbers = np.empty(self.comm.size, np.int64)
        self.comm.Allgather(np.array([number], np.int64), numbers)
        if (numbers != number).any():
            raise VerificationError(f"{what} differs between devices: {numbers.tolist()}")

    def free_channels(self) -> None:
        """Give back requests and datatypes, which is this rank's own business. No channel may be under way."""
        for channel in self._channels:
            channel.free()
        self._channels = []

    def free_groups(self) -> None:
        """Give back the groups' communicators, as all ranks must together."""
        for group in self._groups.values():
            group.Free()
        self._groups = {}

    def _group(self, members: tuple[int, ...]) -> MPI.Intracomm:
        """The members' own communicator, numbered in their order. Made by them alone, when they first need it."""
        if members not in self._groups:
            group = self.comm.group.Incl(members)
            self._groups[members] = self.comm.Create_group(group)
            group.Free()
        return self._groups[members]

    def _messages(self, traffic: Traffic, operands: Sequence[Buffer], results: Sequence[Buffer]) -> Messages:
        source, target = _source(operands), _target(results)
        sent: dict[int, list[Part]] = {}
        received: dict[int, list[Part]] = {}
        copies = []
        for piece in traffic.sent:
            if source(piece).elements:
                sent.setdefault(piece.peer, []).append(source(piece))
        for piece in traffic.received:
            if piece.peer == traffic.device:
                copies.append((source(piece), target(piece)))
            elif target(piece).elements:
                received.setdefault(piece.peer, []).append(target(piece))
        views = [b.view(self.memory) for b in results]
        return Messages(self.comm, self.memory, sent, received, copies, partial(fill_outside, traffic, views))

    def _collective(self, traffic: Traffic, operands: Sequence[Buffer], results: Sequence[Buffer]) -> Collective:
        group = self._group(traffic.group)
        source, target = _source(operands), _target(results)
        own = [p for p in traffic.received if p.peer == traffic.device]
        sent = [[source(p) for p in (*traffic.sent, *own) if p.peer == m] for m in traffic.group]
        received = [[target(p) for p in traffic.received if p.peer == m] for m in traffic.group]
        if all(row == sent[0] and len(row) == 1 for row in sent):  # all get the same: so it is on every member
            return gathering(group, self.memory, sent[0][0], [part for (part,) in received])
        return swapping(group, self.memory, sent, received)

    def _reduction(
        self, name: str, number: int, reduction: Reduction, operand: Buffer, result: Buffer
    ) -> Collective:
        group, type_ = self._group(reduction.members), operand.type
        rank, source, target = group.rank, Part.of(operand, _all(operand.type)), Part.of(result, _all(result.type))
        how = scheme(reduction, type_)
        if how.native:
            return summing(group, self.memory, source, target, how.native, how.scatter)
        dtype = numpy_dtype(type_.dtype)
        sent = [Part(operand.offset, how.shape, dtype.itemsize, box) for box in how.boxes]
        place, count = self.staged(name, number), sent[rank].elements
        rows = (group.size, how.largest)
        staged = [Part(place, rows, dtype.itemsize, ((i, i + 1), (0, count))) for i in range(group.size)]
        shared = []
        if how.shared:
            parts = [Part(result.offset, how.shape, dtype.itemsize, box) for box in how.boxes]
            shared, target = [sharing(group, self.memory, parts)], parts[rank]
        return together([
            combining(group, self.memory, dtype, sent, staged, target, reduction.combine), *shared])


def _source(operands: Sequence[Buffer]) -> Callable[[Piece], Part]:
    return lambda piece: Part.of(operands[piece.operand], piece.source)


def _target(results: Sequence[Buffer]) -> Callable[[Piece], Part]:
    return lambda piece: Part.of(results[piece.result], piece.target)


def _all(type_: TensorType) -> Box:
    return tuple((0, n) for n in type_.shape)
