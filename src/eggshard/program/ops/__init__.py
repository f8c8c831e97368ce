"""The op registry: one file per op family; `registry` answers by name."""

from importlib import import_module
from importlib.util import find_spec

from eggshard.program.ops import base as registry

for _family in ("elementwise", "movement", "creation", "contraction", "reduction", "indexing", "convolution", "sorting", "linalg", "random", "control", "opaque"):
    if find_spec(f"eggshard.program.ops.{_family}") is not None:
        import_module(f"eggshard.program.ops.{_family}")

__all__ = ["registry"]
