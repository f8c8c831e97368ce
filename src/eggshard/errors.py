"""The exceptions of this package, by kind. Every message names the place, the problem and the remedy."""

import re as _re
from typing import Any as _Any

_CONTROL = _re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """Text with Python's spelling of control characters, which would command a terminal; lines and tabs stay."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text) if _CONTROL.search(text) else text


class EggshardError(Exception):
    """Base of every error that eggshard raises on purpose. ``located``: its message says already at which op."""

    located = False

    def __str__(self) -> str:
        return printable(super().__str__())


class ProgramError(EggshardError):
    """The program text or graph is malformed, ill-typed, or uses what eggshard does not support."""


class MeshError(EggshardError):
    """A mesh is malformed, or does not fit the devices present."""


class ShardingError(EggshardError):
    """A sharding names unknown axes, uses an axis twice, or does not fit its tensor."""


class CostModelError(EggshardError):
    """A cost model raised, or answered something that is not a non-negative number."""


class RewriteError(EggshardError):
    """A rewrite rule is malformed, or has no law test."""


class LimitError(EggshardError):
    """A limit makes every plan impossible, e.g. a memory limit below the least possible peak."""


class LoweringError(EggshardError):
    """A plan cannot be lowered or run as asked, e.g. under a mesh of another shape."""


class VerificationError(EggshardError):
    """A plan computed something else than its program."""


class WorkspaceError(EggshardError):
    """A workspace cannot be laid out or addressed: sizes overflow, a size is unknown, a request is contradictory."""


class EngineError(EggshardError):
    """A run on processes or ranks failed: one of them died, never answered, or overwrote another's memory."""


class DependencyError(EggshardError, ModuleNotFoundError):
    """A package is missing, which an extra brings, or is of a version that eggshard does not work with."""


class ConfigError(EggshardError, ValueError):
    """`eggshard.config` has no such option, or the option no such value."""


class Interrupted(KeyboardInterrupt):
    """Planning was interrupted, by Ctrl-C. plan: the best one so far, else the baseline; None where memory was limited
    and no plan within the limit is known."""

    def __init__(self, plan: _Any = None):
        super().__init__("planning was interrupted; the best plan so far is in the exception's `plan`")
        self.plan = plan


class EggshardWarning(UserWarning):
    """Base of every warning of eggshard. Results are still correct."""


class FallbackWarning(EggshardWarning):
    """Something could not be planned, or a plan not be proved, and runs as it would without eggshard."""


class GuardWarning(EggshardWarning):
    """XLA's own program runs since the plan is worse, by `eggshard.jit(guard=True)`, or they could not be compared."""


class LateWarning(EggshardWarning):
    """The clock ended a search, so another run may find another result."""
