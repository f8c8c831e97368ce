"""The op registry: one file per op family; `registry` answers by name."""

from eggshard.program.ops import base as registry

__all__ = ["registry"]
