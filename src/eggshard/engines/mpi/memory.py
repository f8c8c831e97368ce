"""A rank's memory, in pages of its own so that the system can tell how many were touched."""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np


class Pages:
    """Zeroed bytes that begin on a page and take memory only where they are touched."""

    def __init__(self, size: int):
        self.size = size
        self._map = mmap.mmap(-1, max(1, size))
        self.array = np.frombuffer(self._map, np.uint8)[:size]

    @property
    def touched(self) -> int | None:
        """Bytes of the pages read or written so far; None where the system does not tell."""
        if not sys.platform.startswith("linux"):
            return None
        pages = -(-len(self._map) // mmap.PAGESIZE)
        resident = np.zeros(pages, np.uint8)
        start = ctypes.c_void_p(np.frombuffer(self._map, np.uint8).ctypes.data)
        told = ctypes.CDLL(None, use_errno=True).mincore(
            start, ctypes.c_size_t(len(self._map)), ctypes.c_void_p(resident.ctypes.data)
        )
        return int((resident & 1).sum()) * mmap.PAGESIZE if told == 0 else None
