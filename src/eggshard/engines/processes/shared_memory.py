"""The communicator of devices that share memory: each piece is copied from the peer's slice, once.

A value's buffer is at the same offset of every slice, so the stride is all that a device needs to find its peers'.
Each step begins when a device tells its readers that the operands are ready, and ends when all of them have read.
"""

from __future__ import annotations

import zlib

import numpy as np

from eggshard.engines.processes.mailboxes import Kind, Mailboxes
from eggshard.engines.ranks.communicator import Buffer, Channel
from eggshard.engines.ranks.runner import fill_outside
from eggshard.engines.ranks.traffic import Reduction, Traffic, box_of
from eggshard.errors import VerificationError

#: Bytes from which a group reduces in shares, and then reads each other's; below, each reduces all: one wait less.
SHARED_REDUCTION = 1 << 15


class SharedMemoryCommunicator:
    """One device among others whose slices lie in one array of bytes, ``stride`` apart."""

    def __init__(self, workspace: np.ndarray, stride: int, mailboxes: Mailboxes):
        self.device = mailboxes.device
        self.devices = len(workspace) // stride
        self._slices = [workspace[i * stride : (i + 1) * stride] for i in range(self.devices)]
        self._mailboxes = mailboxes

    def prepare(
        self, name: str, traffic: Traffic, operands: tuple[Buffer, ...], results: tuple[Buffer, ...]
    ) -> Channel:
        """See `Communicator.prepare`."""
        return _Pulled(self._slices, self._mailboxes, zlib.crc32(name.encode()), traffic, operands, results)

    def agree(self, number: int, what: str) -> None:
        """See `Communicator.agree`. The first device compares, and answers with its own number or another one."""
        box, others = self._mailboxes, range(1, self.devices)
        tag = zlib.crc32(what.encode())
        if self.device:
            box.post(0, Kind.NUMBER, tag, number)
            if box.take(0, Kind.VERDICT, tag) != 0:
                raise VerificationError(f"{what} differs between devices; it is {number} on device {self.device}")
            return
        numbers = [number, *(box.take(other, Kind.NUMBER, tag) for other in others)]
        differ = len(set(numbers)) > 1
        for other in others:
            box.post(other, Kind.VERDICT, tag, int(differ))
        if differ:
            raise VerificationError(f"{what} differs between devices: {numbers}")


class _Pulled:
    """A step in which every device reads what it needs from its peers' operands."""

    def __init__(
        self, slices: list[np.ndarray], mailboxes: Mailboxes, tag: int, traffic: Traffic,
        operands: tuple[Buffer, ...], results: tuple[Buffer, ...],
    ):
        self._traffic, self._mailboxes, self._tag = traffic, mailboxes, tag
        own = traffic.device
        self._results = [b.view(slices[own]) for b in results]
        self._copies = []
        for p in traffic.received:
            theirs = operands[p.operand].view(slices[p.peer])
            self._copies.append((p.peer, box_of(self._results[p.result], p.target), box_of(theirs, p.source)))
        self._alone: list[tuple[Reduction, list[np.ndarray]]] = []
        self._in_shares: list[tuple[Reduction, list[np.ndarray], list[np.ndarray]]] = []
        for r in traffic.reductions:
            partial_sums = [operands[r.operand].view(slices[m]) for m in r.members]
            whole = all(box == (0, n) for box, n in zip(r.kept, operands[r.operand].type.shape, strict=True))
            if whole and len(r.members) > 1 and results[r.result].bytes >= SHARED_REDUCTION:
                shares = [results[r.result].view(slices[m]).reshape(-1) for m in r.members]
                self._in_shares.append((r, [a.reshape(-1) for a in partial_sums], shares))
            else:
                self._alone.append((r, [box_of(a, r.kept) for a in partial_sums]))

    def start(self) -> None:
        for reader in self._traffic.readers:
            self._mailboxes.post(reader, Kind.READY, self._tag)
        fill_outside(self._traffic, self._results)

    def finish(self) -> None:
        ready = {self._traffic.device}
        for peer, target, source in self._copies:
            if peer not in ready:
                self._mailboxes.take(peer, Kind.READY, self._tag)
                ready.add(peer)
            target[...] = source
        for peer in self._traffic.sources:
            if peer not in ready:
                self._mailboxes.take(peer, Kind.READY, self._tag)
        for reduction, partial_sums in self._alone:
            self._results[reduction.result][...] = reduction.combine(partial_sums)
        self._reduce_in_shares()
        for peer in self._traffic.sources:
            self._mailboxes.post(peer, Kind.TAKEN, self._tag)
        for peer in self._traffic.readers:
            self._mailboxes.take(peer, Kind.TAKEN, self._tag)

    def _reduce_in_shares(self) -> None:
        """Each member combines its share, then reads the others' from their results."""
        own = self._traffic.device
        for reduction, partial_sums, results in self._in_shares:
            share = _share(reduction, own, len(partial_sums[0]))
            results[reduction.members.index(own)][share] = reduction.combine([a[share] for a in partial_sums])
        if not self._in_shares:
            return
        for peer in self._traffic.readers:
            self._mailboxes.post(peer, Kind.SHARED, self._tag)
        for peer in self._traffic.sources:
            self._mailboxes.take(peer, Kind.SHARED, self._tag)
        for reduction, _, results in self._in_shares:
            mine = results[reduction.members.index(own)]
            for member, theirs in zip(reduction.members, results, strict=True):
                share = _share(reduction, member, len(mine))
                if member != own:
                    mine[share] = theirs[share]


def _share(reduction: Reduction, member: int, elements: int) -> slice:
    """The elements that a member combines for its group."""
    position, count = reduction.members.index(member), len(reduction.members)
    return slice(position * elements // count, (position + 1) * elements // count)
