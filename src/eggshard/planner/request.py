"""A request: what is asked of planning, and how a process plans."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from eggshard.costmodel import CostModel, at_hand, named
from eggshard.errors import (
    CostModelError,
    FallbackWarning,
    LimitError,
    MeshError,
    ProgramError,
    RewriteError,
    ShardingError,
)
from eggshard.frontends import frontend_of
from eggshard.limits import Limits
from eggshard.planner.progress import Bar
from eggshard.program.program import Program
from eggshard.settings import config

if TYPE_CHECKING:
    from eggshard.planner.choosing.known import Known

#: Errors that are the user's to mend: they are raised, not answered with the baseline.
USER_ERRORS = (CostModelError, MeshError, ProgramError, RewriteError, ShardingError)

T = TypeVar("T")

@dataclass(frozen=True)
class Request:
    """The arguments of `optimize` except for the memory limit.

    loaded: the program, where it was read already. known: what is known of it.
    """

    program: Any
    cost_model: CostModel
    rewrites: Sequence[Any] | None
    limits: Limits
    exact: bool
    bar: Bar = field(default_factory=lambda: Bar(False), compare=False)
    loaded: Program | None = None
    known: Known | None = field(default=None, compare=False)

    def read(self) -> Program:
        """The program, from its source."""
        return frontend_of(self.program).read(self.program)

    @property
    def rules(self) -> Sequence[Any]:
        from eggshard.rewrites import default_rules, select

        return select(default_rules() if self.rewrites is None else self.rewrites, self.exact)

    @property
    def own_rules(self) -> Sequence[Any]:
        """The rules that are not eggshard's."""
        if not self.rewrites:
            return ()
        from eggshard.rewrites import default_rules

        return [rule for rule in self.rules if rule not in default_rules()]


def requested(
    program: Any, cost_model: CostModel | str | None = None, rewrites: Sequence[Any] | None = None,
    limits: Limits | None = None, exact: bool = False, effort: str | None = None,
    loaded: Program | None = None, known: Known | None = None,
) -> Request:
    """Build the request from arguments of `eggshard.optimize`; LimitError for limits of another type."""
    if limits is not None and not isinstance(limits, Limits):
        raise LimitError(f"limits={limits!r} is no eggshard.Limits; give e.g. limits=eggshard.Limits(seconds=10)")
    if cost_model is None:
        cost_model = at_hand(frontend_of(program).devices(program))
    model = named(cost_model) if isinstance(cost_model, str) else cost_model
    limits = limits or Limits(seconds=config.seconds, effort=config.effort)
    limits = replace(limits, effort=effort) if effort else limits
    return Request(program, model, rewrites, limits, exact, loaded=loaded, known=known)


def or_warned(search: Callable[[], T], otherwise: T, failed: str, instead: str) -> T:
    """What a search finds; where it fails by no fault of the user's, a FallbackWarning that says what is done instead.
    """
    try:
        return search()
    except USER_ERRORS:
        raise
    except Exception as error:
        warnings.warn(f"{failed} ({type(error).__name__}: {error}); {instead}", FallbackWarning, stacklevel=4)
        return otherwise
