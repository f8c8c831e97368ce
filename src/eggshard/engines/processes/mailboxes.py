"""Mailboxes for messages of a few bytes between the devices' processes: each device owns a pipe that all may write to.

A record is far shorter than an atomic pipe write, so records of several writers never interleave, and reading one
orders memory after everything that its writer wrote to shared memory before. A device that waits sleeps.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from collections.abc import Sequence
from enum import IntEnum

from eggshard.errors import EngineError

_RECORD = struct.Struct("<HHIq")
_AT_ONCE = 4096 // _RECORD.size * _RECORD.size


class Kind(IntEnum):
    """What a record says of its sender: its operands are ready; its share of a reduction is; it has read what it needs
    of the receiver; the number that it compares; the number that all others compared equal to."""

    READY = 0
    SHARED = 1
    TAKEN = 2
    NUMBER = 3
    VERDICT = 4


class Mailboxes:
    """One device's own pipe, and the writing ends of all others'.

    A device has at most a few records under way to each other one, far less than a pipe holds, so that writing does
    not wait. EngineError where a peer's process is gone, or is at another step.
    """

    def __init__(self, device: int, own: int, peers: Sequence[int]):
        """own: the descriptor to read from; peers: by device, those to write to."""
        self.device = device
        self._own, self._peers = own, tuple(peers)
        self._kept: dict[tuple[int, int], deque[tuple[int, int]]] = {}
        self._part = b""

    def post(self, peer: int, kind: Kind, tag: int = 0, number: int = 0) -> None:
        """Send a record. tag: names what it belongs to; the peer compares it with its own."""
        try:
            os.write(self._peers[peer], _RECORD.pack(self.device, kind, tag, number))
        except BrokenPipeError:
            raise EngineError(f"device {self.device} cannot reach device {peer}: its process is gone") from None

    def take(self, peer: int, kind: Kind, tag: int = 0) -> int:
        """The number of the next record of a kind from a peer; waits for it."""
        queue = self._kept.setdefault((peer, kind), deque())
        while not queue:
            self._read()
        theirs, number = queue.popleft()
        if theirs != tag:
            raise EngineError(
                f"device {peer} is at another step than device {self.device}, which waits for it; devices must run the "
                "same steps in the same order"
            )
        return number

    def _read(self) -> None:
        data = self._part + os.read(self._own, _AT_ONCE)
        if len(data) == len(self._part):
            raise EngineError(f"device {self.device} waits, but all other devices' processes are gone")
        whole = len(data) // _RECORD.size * _RECORD.size
        for sender, kind, tag, number in _RECORD.iter_unpack(data[:whole]):
            self._kept.setdefault((sender, kind), deque()).append((tag, number))
        self._part = data[whole:]
