"""Handler tables: what is done with each kind of action, such as running it, writing its text, listing its traffic.

Every table is complete: each concrete action has a handler, or a reason why there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from eggshard.errors import LoweringError
from eggshard.steps.steps import Action

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

#: All tables, in the order in which they were made.
TABLES: list[Handlers[Any]] = []


class Handlers(Generic[R]):
    """A table from classes of actions to functions; calling it with an action calls the function of its class.

    A subclass has its base's function unless it has its own. purpose: what the functions do, e.g. "simulation".
    """

    def __init__(self, purpose: str):
        self.purpose = purpose
        self._handlers: dict[type[Action], Callable[..., R]] = {}
        self._refused: dict[type[Action], str] = {}
        TABLES.append(self)

    def handles(self, *kinds: type[Action]) -> Callable[[F], F]:
        """Decorates the function for actions of these classes."""

        def added(handler: F) -> F:
            self._handlers.update(dict.fromkeys(kinds, handler))
            return handler

        return added

    def refuses(self, reason: str, *kinds: type[Action]) -> None:
        """State why actions of these classes have no function."""
        self._refused.update(dict.fromkeys(kinds, reason))

    def __call__(self, action: Action, *args: Any) -> R:
        return self.of(action)(action, *args)

    def of(self, action: Action) -> Callable[..., R]:
        """The function of an action's class; LoweringError, naming action and table, where it has none."""
        kind = type(action)
        for base in kind.__mro__:
            if base in self._handlers:
                return self._handlers[base]
        raise LoweringError(f"{self.purpose} of {kind.__name__} ({kind.kind}): {self._refused.get(kind, 'not known')}")

    def has(self, action: Action) -> bool:
        """Whether an action has a function; LoweringError where the table does not say why it has none."""
        return type(action) not in self._refused and bool(self.of(action))

    @property
    def kinds(self) -> tuple[type[Action], ...]:
        """The classes that have a function of their own."""
        return tuple(self._handlers)

    def covers(self, kind: type[Action]) -> bool:
        """Whether actions of a class have a function, or a reason for having none."""
        return not {*kind.__mro__}.isdisjoint({*self._handlers, *self._refused})


def kinds() -> list[type[Action]]:
    """All concrete actions that are defined: those of which there are no subclasses."""

    def concrete(kind: type[Action]) -> Iterator[type[Action]]:
        # A dataclass with slots is made twice; the second class of a name is the one that stays.
        inner = {(sub.__module__, sub.__qualname__): sub for sub in kind.__subclasses__()}
        for sub in inner.values():
            yield from concrete(sub)
        if not inner:
            yield kind

    return list(concrete(Action))
