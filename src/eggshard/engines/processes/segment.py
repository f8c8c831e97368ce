"""The shared memory segment of a run: the progress of each process, and every device's slice.

It is a file without a name, which processes inherit by its descriptor: it goes with the last of them. Guard regions
with a known pattern separate the slices; they reveal who writes past a slice.
"""

from __future__ import annotations

import mmap
import os
import tempfile

import numpy as np

from eggshard.errors import EngineError

#: Bytes of a guard region.
GUARD = 64
#: Bytes for each device's progress: no two share a line that processors exchange.
_LINE = 64
#: Where files are memory.
_DIRECTORY = "/dev/shm"


class Segment:
    """Shared memory for some devices' slices; ``file``: a descriptor, which it closes. See `created`."""

    def __init__(self, file: int, devices: int, stride: int):
        self.file, self.devices, self.stride = file, devices, stride
        start = front(devices)
        memory = mmap.mmap(file, start + devices * stride)  # it goes with the last array that looks at it
        self._bytes = np.frombuffer(memory, np.uint8)
        self._progress = self._bytes[: devices * _LINE].view(np.int64).reshape(devices, -1)[:, 0]
        self.workspace = self._bytes[start:]

    @classmethod
    def created(cls, devices: int, stride: int) -> Segment:
        """A new segment, of zeros, with its guards in place. EngineError if shared memory does not suffice."""
        size = front(devices) + devices * stride
        try:
            with tempfile.TemporaryFile(dir=_DIRECTORY if os.path.isdir(_DIRECTORY) else None) as file:
                room = os.fstatvfs(file.fileno())
                if size > room.f_bavail * room.f_frsize:
                    raise OSError(f"{room.f_bavail * room.f_frsize} bytes are left")
                file.truncate(size)
                made = cls(os.dup(file.fileno()), devices, stride)
        except OSError as error:
            raise EngineError(
                f"a workspace of {size} bytes for {devices} devices does not fit into shared memory ({error}); run a "
                "smaller program, or allow more"
            ) from None
        for device in range(-1, devices):
            guard = made._guard(device)
            guard[...] = _pattern(device, len(guard))
        return made

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
        if not os.path.isdir(_DIRECTORY):
            return None
        return os.fstat(self.file).st_blocks * 512 - front(self.devices)

    def check(self, device: int) -> None:
        """EngineError if a guard was overwritten: that of a device, or with -1 the one before the first slice."""
        guard = self._guard(device)
        wrong = np.flatnonzero(guard != _pattern(device, len(guard)))
        if len(wrong):
            where = f"behind the slice of device {device}" if device >= 0 else "before the slice of device 0"
            raise EngineError(
                f"the guard {where} was overwritten, {wrong[0]} bytes from its start: some device wrote outside its "
                "slice"
            )

    def _guard(self, device: int) -> np.ndarray:
        end = front(self.devices) + (device + 1) * self.stride
        return self._bytes[end - GUARD : end]

    def close(self) -> None:
        """Give the memory back."""
        del self._bytes, self._progress, self.workspace
        os.close(self.file)


def front(devices: int) -> int:
    """Bytes before the first slice: every device's progress, and a guard; whole pages."""
    return -(-(devices * _LINE + GUARD) // mmap.PAGESIZE) * mmap.PAGESIZE


def _pattern(device: int, size: int) -> np.ndarray:
    return ((np.arange(size) * 37 + 101 + 11 * device) % 251).astype(np.uint8)
