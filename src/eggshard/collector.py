"""Python's cycle collector, which planning does without."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause Python's cycle collector within the context.

    Planning makes many small objects, so that the collector's passes over the whole heap take a good part of the time.
    Afterwards all that was made meanwhile, by the caller too, is young to the collector and visited by its next pass.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
