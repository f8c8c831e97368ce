"""The reasons of a plan: every decision with its rules, its alternatives and their prices. Plain data, kept in JSON.

Prices are those of the selection problem, in seconds under the plan's cost model, differences of two plans' totals
(`selection.search.marginal`). What a plan's steps share beyond the selection (joined exchanges, shared prefixes of
reshards) is not in them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache, cached_property
from itertools import repeat
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from eggshard.tables import Shown


class Part(NamedTuple):
    """Something that one of two plans pays for and the other does not: in words, its kind (an op or a collective), the
    class that it is of (`Held.cls`), and its price."""

    what: str
    kind: str
    cls: int
    seconds: float


class Flip(NamedTuple):
    """A price that would have to move for an alternative to be as cheap as the plan: from ``seconds`` to ``becomes``.

    of_plan: whether the plan pays it (and it has to rise) or the alternative (and it has to fall). Of a kind of step:
    ``seconds`` and ``becomes`` are 1 and a factor on the price of every step of that kind.
    """

    what: str
    seconds: float
    becomes: float
    of_plan: bool
    every: bool = False

    @property
    def factor(self) -> float:
        """What the price has to be multiplied by."""
        return self.becomes / self.seconds if self.seconds else math.inf


@dataclass(frozen=True)
class Alternative:
    """Another way to decide.

    own: seconds of the step itself. held: by how much the plan's total would rise, all else held. change: the same
    where other decisions may follow, as far as local search finds (at most ``held``). leaves, joins: what makes up
    ``change``. at_least: ``change`` is a lower bound (bodies of loops and branches are planned when they are chosen).
    """

    what: str
    rules: tuple[str, ...]
    own: float
    held: float
    change: float
    leaves: tuple[Part, ...]
    joins: tuple[Part, ...]
    at_least: bool = False

    @property
    def flips(self) -> list[Flip]:
        """What would have to change, one price alone, for this to be as cheap as the plan; the least change first."""
        gap = max(0.0, self.change)
        found = [Flip(p.what, p.seconds, p.seconds + gap, True) for p in self.leaves if p.seconds > 0]
        found += [Flip(p.what, p.seconds, p.seconds - gap, False) for p in self.joins if p.seconds > max(gap, 0.0)]
        kinds: Counter[str] = Counter()
        for part in self.leaves:
            kinds[part.kind] += part.seconds  # type: ignore[assignment]
        for part in self.joins:
            kinds[part.kind] -= part.seconds  # type: ignore[assignment]
        for kind, less in kinds.items():
            if abs(less) > 1e-15 and 1 + gap / less > 0:
                found.append(Flip(f"every {kind}", 1.0, 1 + gap / less, less > 0, True))
        return sorted(found, key=lambda flip: abs(math.log(flip.factor)) if flip.factor > 0 else math.inf)


@dataclass(frozen=True)
class Decision:
    """One thing that the plan decided.

    kind: "op" (by which op, at which placement), "reshard", "output" (where it lies), "window" (how much is held around
    a tile). cls: `Held.cls` of the steps that it is about. values: values of the program that the tensor is. rules: the
    chain of rules that led to the op: its own first, then those that made its operands, as (rule, op made). weighed:
    how many alternatives were priced; the cheapest are kept. problem: as of `Origin`; that of a body is solved once,
    and all seconds are of its ``runs`` taken together.
    """

    cls: int
    kind: str
    what: str
    tensor: str
    placement: str
    seconds: float
    values: tuple[int, ...] = ()
    rules: tuple[tuple[str, str], ...] = ()
    weighed: int = 0
    alternatives: tuple[Alternative, ...] = ()
    problem: int = 0
    runs: int = 1

    def of_body(self, problem: int, runs: int) -> Decision:
        """Move the decision into the selection problem of a body, with seconds multiplied by the number of its runs."""
        def all_runs(parts: Iterable[Part]) -> tuple[Part, ...]:
            return tuple(part._replace(seconds=runs * part.seconds) for part in parts)

        others = tuple(
            replace(a, own=runs * a.own, held=runs * a.held, change=runs * a.change, leaves=all_runs(a.leaves),
                    joins=all_runs(a.joins)) for a in self.alternatives)
        return replace(self, seconds=runs * self.seconds, alternatives=others, problem=problem, runs=runs)

    @property
    def next_best(self) -> Alternative | None:
        """The alternative that costs least more."""
        return min(self.alternatives, key=lambda a: a.change, default=None)


@dataclass(frozen=True, repr=False)
class Reasons(Shown):
    """All decisions of a plan. total: seconds of the selection. note: what readers should know, or why there are none.

    unit: what prices are in, where they are not the seconds that a plan takes.
    """

    decisions: tuple[Decision, ...] = ()
    total: float = 0.0
    note: str = ""
    unit: str = ""

    def __str__(self) -> str:
        return "\n".join(filter(None, (
            f"{len(self.decisions)} decisions; plan.explain() and plan.explain(step) tell them in words", self.note)))

    @cached_property
    def of_class(self) -> dict[tuple[int, int], list[Decision]]:
        """Decisions by problem and class."""
        found: dict[tuple[int, int], list[Decision]] = {}
        for decision in self.decisions:
            found.setdefault((decision.problem, decision.cls), []).append(decision)
        return found


#: Weighs decisions, given the names of the values that hold the classes of the problem.
Weigh = Callable[[Mapping[int, str]], Reasons]


class BodyReasons(NamedTuple):
    """What explains the body of a loop, branch or manual computation: the number of its problem, how often it runs."""

    number: int
    runs: int
    weigh: Weigh
    names: Mapping[int, str]


@dataclass(frozen=True)
class WithBodies:
    """Weighs the decisions of a program and those of the bodies in it when asked."""

    program: Weigh
    bodies: tuple[BodyReasons, ...]

    def __call__(self, names: Mapping[int, str]) -> Reasons:
        reasons = self.program(names)
        inside = [d.of_body(body.number, body.runs) for body in self.bodies for d in body.weigh(body.names).decisions]
        return replace(reasons, decisions=(*reasons.decisions, *inside))


def packed(reasons: Reasons) -> dict[str, object]:
    """As JSON values, every text once: a decision is the list of its fields, and so is what is in it."""
    number: dict[str, int] = {}

    def row(value: Any) -> Any:
        if isinstance(value, str):
            return number.setdefault(value, len(number))
        if is_dataclass(value):
            return [row(getattr(value, f.name)) for f in fields(value)]
        return [row(v) for v in value] if isinstance(value, tuple) else value

    return {"decisions": [row(d) for d in reasons.decisions], "total": reasons.total, "note": reasons.note,
            "unit": reasons.unit, "texts": list(number)}


def unpacked(data: dict[str, Any]) -> Reasons:
    """What `packed` was given."""
    texts = data["texts"]

    def value(kind: Any, row: Any) -> Any:
        if kind is str:
            return texts[row]
        if get_origin(kind) is tuple:
            inside, *more = get_args(kind)
            kinds = repeat(inside) if more == [...] else (inside, *more)
            return tuple(value(k, v) for k, v in zip(kinds, row, strict=False))
        if isinstance(row, list):
            return kind(*(value(k, v) for k, v in zip(_field_types(kind), row, strict=False)))
        return kind(row)

    return Reasons(tuple(value(Decision, row) for row in data["decisions"]), data["total"], data["note"], data["unit"])


@cache
def _field_types(kind: type) -> tuple[Any, ...]:
    return tuple(get_type_hints(kind).values())
