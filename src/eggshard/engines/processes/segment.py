"""The shared memory segment of a run: the progress of each process, and every device's slice.

Guard regions with a known pattern separate the slices; they reveal who writes past a slice.
"""

from __future__ import annotations

import os
import sys
from multiprocessing import resource_tracker, shared_memory

import numpy as np

from eggshard.errors import EngineError

#: Bytes of a guard region.
GUARD = 64
#: Bytes of a page of memory.
PAGE = 4096
#: Bytes for each device's progress: no two share a line that processors exchange.
_LINE = 64
_DIRECTORY = "/dev/shm"


class Segment:
    """Shared memory for some devices' slices. See `created` and `attached`."""

    def __init__(self, memory: shared_memory.SharedMemory, devices: int, stride: int):
        self._memory, self.devices, self.stride = memory, devices, stride
        start = front(devices)
        self._bytes = np.ndarray((start + devices * stride,), np.uint8, memory.buf)
        self._progress = self._bytes[: devices * _LINE].view(np.int64).reshape(devices, -1)[:, 0]
        self.workspace = self._bytes[start:]
        # Kept open, it tells of pages when the segment has no name any longer.
        path = os.path.join(_DIRECTORY, memory.name.lstrip("/"))
        self._file = os.open(path, os.O_RDONLY) if os.path.exists(path) else -1

    @classmethod
    def created(cls, devices: int, stride: int) -> Segment:
        """A new segment, of zeros, with its guards in place. EngineError if shared memory does not suffice."""
        size = front(devices) + devices * stride
        try:
            room = os.statvfs(_DIRECTORY) if os.path.isdir(_DIRECTORY) else None
            if room is not None and size > room.f_bavail * room.f_frsize:
                raise OSError(f"{_DIRECTORY} has {room.f_bavail * room.f_frsize} bytes left")
            made = cls(shared_memory.SharedMemory(create=True, size=size), devices, stride)
        except OSError as error:
            raise EngineError(
                f"a workspace of {size} bytes for {devices} devices does not fit into shared memory ({error}); run a "
                "smaller program, or allow more"
            ) from None
        made._set_guards()
        return made

    @classmethod
    def attached(cls, name: str, devices: int, stride: int) -> Segment:
        """Attach the segment of that name from another process; its creator remains the one to remove it."""
        if sys.version_info >= (3, 13):
            return cls(shared_memory.SharedMemory(name, track=False), devices, stride)
        # Until Python 3.13, whoever attaches a segment starts a tracker that removes it when he ends.
        register = resource_tracker.register
        resource_tracker.register = lambda *_: None
        try:
            return cls(shared_memory.SharedMemory(name), devices, stride)
        finally:
            resource_tracker.register = register

    @property
    def name(self) -> str:
        """The name by which other processes attach it."""
        return self._memory.name

    def slice(self, device: int) -> np.ndarray:
        """A device's bytes, its guard included."""
        return self.workspace[device * self.stride : (device + 1) * self.stride]

    def tell(self, device: int, number: int) -> None:
        """Say that a device has reached its so many-th step; 0: that it waits."""
        self._progress[device] = number

    def progress(self, device: int) -> int:
        """What a device said last."""
        return int(self._progress[device])

    @property
    def touched(self) -> int | None:
        """Bytes of the pages that were ever used of the workspace; None where the system does not tell."""
        if self._file < 0:
            return None
        return os.fstat(self._file).st_blocks * 512 - front(self.devices)

    def overwritten(self, device: int) -> int | None:
        """How far behind the end of a device's slice (-1: before the first slice) its guard's pattern is broken first;
        None: it is whole."""
        wrong = np.flatnonzero(self._guard(device) != _pattern(device, len(self._guard(device))))
        return int(wrong[0]) if len(wrong) else None

    def check(self, device: int) -> None:
        """EngineError if a guard was overwritten: that of a device, or with -1 the one before the first slice."""
        found = self.overwritten(device)
        if found is not None:
            where = f"behind the slice of device {device}" if device >= 0 else "before the slice of device 0"
            raise EngineError(
                f"the guard {where} was overwritten, {found} bytes from its start: some device wrote outside its slice"
            )

    def _set_guards(self) -> None:
        for device in range(-1, self.devices):
            guard = self._guard(device)
            guard[...] = _pattern(device, len(guard))

    def _guard(self, device: int) -> np.ndarray:
        end = front(self.devices) + (device + 1) * self.stride
        return self._bytes[end - GUARD : end]

    def unlink(self) -> None:
        """Take its name away: the memory goes when the last process that has it goes. Nothing if it has none."""
        try:
            self._memory.unlink()
        except FileNotFoundError:
            pass

    def close(self) -> None:
        """Give the memory back, and the name if it has one."""
        del self._bytes, self._progress, self.workspace
        try:
            self._memory.close()
        except BufferError:
            pass  # an array of the caller's still looks at it; it goes with that
        self.unlink()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def front(devices: int) -> int:
    """Bytes before the first slice: every device's progress, and a guard; whole pages."""
    return -(-(devices * _LINE + GUARD) // PAGE) * PAGE


def _pattern(device: int, size: int) -> np.ndarray:
    return ((np.arange(size) * 37 + 101 + 11 * device) % 251).astype(np.uint8)
