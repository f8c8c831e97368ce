"""Directories of worker processes, in memory where the platform has such a place, and their removal.

A worker removes its own. One that is killed together with its parent can't: the next worker to start does so. A worker
holds a lock on a file in its directory, which the system lets go of when the worker ends, however it ends.
"""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import tempfile
import time
from contextlib import suppress

#: What the directories' names begin with, and the name of the locked file.
_PREFIX, _HELD = "eggshard-worker-", "held"
#: Seconds after which a directory without that file is of a process that ended before its worker began.
_STARTS = 60.0


def new_directory() -> str:
    """A new directory; those whose workers have ended are removed."""
    memory = "/dev/shm"
    in_memory = os.path.isdir(memory) and os.access(memory, os.W_OK)
    place = memory if in_memory else tempfile.gettempdir()
    for found in glob.glob(os.path.join(place, f"{_PREFIX}*")):
        if _is_abandoned(found):
            shutil.rmtree(found, ignore_errors=True)
    return tempfile.mkdtemp(prefix=_PREFIX, dir=place)


def hold(directory: str) -> None:
    """Keep the directory until this process ends. The file has its name only once it is locked."""
    path = os.path.join(directory, _HELD)
    with suppress(OSError):
        fcntl.flock(os.open(f"{path}.new", os.O_CREAT | os.O_RDWR, 0o600), fcntl.LOCK_SH)
        os.rename(f"{path}.new", path)


def remove(directory: str) -> None:
    """Remove a directory in which another thread may still make files."""
    for _ in range(3):
        shutil.rmtree(directory, ignore_errors=True)
        if not os.path.exists(directory):
            return


def _is_abandoned(directory: str) -> bool:
    """Whether the worker of a directory has ended, or never began; not if that can't be told."""
    try:
        handle = os.open(os.path.join(directory, _HELD), os.O_RDWR)
    except FileNotFoundError:
        with suppress(OSError):
            return time.time() - os.stat(directory).st_mtime > _STARTS
        return False
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
