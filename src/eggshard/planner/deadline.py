"""When a search ends by the clock, and whether it did: everything else is bounded by work, which no clock counts."""

from __future__ import annotations

import time


class Deadline:
    """The end of a search, shared by all that plans for it, bodies of loops included.

    at: of `time.monotonic`. missed: the stages that the clock ended before they were done.
    """

    def __init__(self, seconds: float) -> None:
        self.at = time.monotonic() + seconds
        self.missed: dict[str, None] = {}

    @property
    def left(self) -> float:
        """The seconds left, negative once the search is late."""
        return self.at - time.monotonic()

    def miss(self, stage: str) -> None:
        """Note that the clock ended a stage."""
        self.missed[stage] = None

    def passed(self, stage: str) -> bool:
        """Whether time is up; a stage that asks ends then, and is noted."""
        if self.left > 0:
            return False
        self.miss(stage)
        return True
