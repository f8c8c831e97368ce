"""Rewrite rules: an equation between tensors, its condition, its mark, and its law test.

A rule's function sees the matched attributes and tensor types and returns the attributes of the right side, or None
where the rule does not hold. The engine never calls it: it reports which attributes and types it met, the function
answers once for each, and the answers go back as a table (`eggshard.egraph.compilation`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from eggshard.egraph.patterns import Node, Pattern, check_patterns, is_pointwise, parse_rule, postorder, variables
from eggshard.errors import ProgramError, RewriteError
from eggshard.ops import registry
from eggshard.program.attributes import Attributes
from eggshard.program.types import TensorType, is_float, is_number

#: "=": bit for bit equal. "ρ": equal up to the rounding of reordered floating-point arithmetic.
MARKS = ("=", "ρ")
NO_ATTRIBUTES = Attributes()
#: The most matches of a rule whose answers are cached.
_MEMO_LIMIT = 50_000


class OpUse(NamedTuple):
    """A captured op: its name and attributes."""

    name: str
    attributes: Attributes


class Match:
    """What a rule's left side met: ``m.label`` is the attributes captured there, ``m.x`` the type of tensor x.

    ``m.op("f")`` is the name of the op that a family's label captured, ``m.type("label")`` the type of the result of
    the op with that label, ``m.result`` the type of the whole left side. ``m.shard_counts`` are the numbers of shards
    that the axes of the program's mesh can cut a dimension into, in ascending order.
    """

    def __init__(
        self, rule: Rule, uses: Mapping[str, OpUse], types: Mapping[str, TensorType],
        shard_counts: tuple[int, ...] = (),
    ):
        self.shard_counts = shard_counts
        self._uses, self._types = dict(uses), dict(types)
        found: dict[int, TensorType] = {}
        self._results: dict[str, TensorType] = {}
        for node in rule.left_nodes:
            use = uses.get(node.label) if node.label else None
            name, attributes = use if use is not None else (node.op, NO_ATTRIBUTES)
            operands = tuple(types[c] if isinstance(c, str) else found[id(c)] for c in node.children)
            inferred = registry.get(name).infer(attributes, operands)
            if len(inferred) != 1:
                raise ProgramError(f"{name} has {len(inferred)} results; patterns are of ops with one")
            found[id(node)] = inferred[0]
            if node.label:
                self._results[node.label] = inferred[0]
        self.result = found[id(rule.left)]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._uses:
            return self._uses[name].attributes
        if name in self._types:
            return self._types[name]
        raise AttributeError(f"the left side has neither a label nor a tensor {name!r}")

    def op(self, label: str) -> str:
        """The name of the op that a label captured."""
        return self._uses[label].name

    def type(self, label: str) -> TensorType:
        """The result type of the op with this label."""
        return self._results[label]

    def all_types(self) -> tuple[TensorType, ...]:
        """The types of all tensors, and of the whole left side."""
        return (*self._types.values(), self.result)

    def uses(self) -> Mapping[str, OpUse]:
        """All captured ops by label."""
        return self._uses

    def types(self) -> Mapping[str, TensorType]:
        """The types of all tensors by name."""
        return self._types


#: New attributes by label of the right side.
Answer = Mapping[str, Mapping[str, Any]]
Function = Callable[[Match], "Answer | bool | None | Sequence[Answer]"]
#: Instances for the law test, see `eggshard.egraph.laws`.
Cases = Callable[[], Iterable[Any]]


class Made(NamedTuple):
    """A node of a right side: its op, and the types of its operands and result."""

    use: OpUse
    operands: tuple[TensorType, ...]
    result: TensorType


#: A right side that a match was answered with: its nodes in postorder.
Instance = tuple[Made, ...]


@dataclass(frozen=True, eq=False)
class Rule:
    """One oriented equation. Made by `rule`."""

    name: str
    text: str
    left: Node
    right: Pattern
    mark: str
    function: Function | None
    cases: Cases
    exact_if: Callable[[Match], bool]
    enabled_by: tuple[str, str] | None = None
    exact: bool = False
    says: str = ""
    _memo: dict[Any, tuple[Instance, ...]] = field(default_factory=dict, repr=False)

    @cached_property
    def left_nodes(self) -> tuple[Node, ...]:
        """The nodes of the left side, operands before their users."""
        return tuple(postorder(self.left))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The labels of the left side in order of appearance (operands first)."""
        return tuple(dict.fromkeys(n.label for n in self.left_nodes if n.label))

    @cached_property
    def tensors(self) -> tuple[str, ...]:
        """The tensors of the left side in order of appearance."""
        return variables(self.left)

    @cached_property
    def is_arithmetic(self) -> bool:
        """Whether the equation is one of numbers, and says nothing of a type that has no zero and no negatives.

        It is unless it only moves elements, before or after ops of a family.
        """
        nodes = (*self.left_nodes, *postorder(self.right))
        return self.mark == "ρ" or any(not n.is_family and is_pointwise(n.op) for n in nodes)

    @cached_property
    def growth(self) -> int:
        """How many more ops the right side has than the left."""
        return sum(1 for _ in postorder(self.right)) - len(self.left_nodes)

    def instances(
        self, uses: tuple[OpUse, ...], types: tuple[TensorType, ...], shard_counts: tuple[int, ...] = ()
    ) -> tuple[Instance, ...]:
        """The right sides for captured ops (in order of `labels`) and tensor types (in order of `tensors`).

        Empty where the rule does not hold. Remembered, so the rule's function must depend on its match alone.
        Raises RewriteError if the function fails, or answers attributes that make another type than the left side's.
        """
        key = (uses, types, shard_counts)
        known = self._memo.get(key)
        if known is None:
            if len(self._memo) >= _MEMO_LIMIT:
                self._memo.clear()
            known = self._memo[key] = tuple(self._evaluate(uses, types, shard_counts))
        return known

    def _evaluate(
        self, uses: tuple[OpUse, ...], types: tuple[TensorType, ...], shard_counts: tuple[int, ...]
    ) -> Iterator[Instance]:
        captured, named = dict(zip(self.labels, uses, strict=True)), dict(zip(self.tensors, types, strict=True))
        try:
            match = Match(self, captured, named, shard_counts)
        except ProgramError:
            return  # a family captured an op that this shape of pattern does not fit, e.g. a scalar predicate
        if self.is_arithmetic and not all(is_number(t.dtype) for t in match.all_types()):
            return
        if self.exact and not self.exact_if(match):
            return
        for answer in self._answers(match):
            instance = self._instance(match, answer)
            if instance is not None:
                yield instance

    def _answers(self, match: Match) -> list[Answer]:
        if self.function is None:
            return [{}]
        try:
            answer = self.function(match)
        except Exception as error:
            raise RewriteError(f"rule {self.name!r} failed on {self._shown(match)}: {error!r}") from error
        if answer is None or answer is False:
            return []
        if answer is True:
            return [{}]
        answers = [answer] if isinstance(answer, Mapping) else answer
        if not isinstance(answers, Sequence) or not all(isinstance(a, Mapping) for a in answers):
            raise RewriteError(f"rule {self.name!r} answered {answer!r} on {self._shown(match)}; a rule's function "
                               "answers True, None, attributes by label of the right side, or a list of those")
        return list(answers)

    def _instance(self, match: Match, answer: Answer) -> Instance | None:
        captured = match.uses()
        nodes: list[Made] = []
        found: dict[int, TensorType] = {}
        for node in postorder(self.right):
            if node.label in captured:
                use = captured[node.label]
            elif node.label:
                try:
                    given = answer[node.label]
                except KeyError:
                    raise RewriteError(f"rule {self.name!r} answered no attributes for {node.label!r}") from None
                use = OpUse(node.op, given if isinstance(given, Attributes) else Attributes(given))
            else:
                use = OpUse(node.op, NO_ATTRIBUTES)
            operands = tuple(match.types()[c] if isinstance(c, str) else found[id(c)] for c in node.children)
            try:
                (result,) = registry.get(use.name).infer(use.attributes, operands)
            except ProgramError as error:
                if any(n.is_family for n in self.left_nodes):
                    return None
                raise RewriteError(f"rule {self.name!r} on {self._shown(match)} made an ill-typed {use.name}: {error}"
                                   ) from None
            except Exception as error:  # e.g. an attribute that the op needs and the answer lacks
                raise RewriteError(f"rule {self.name!r} on {self._shown(match)} made a malformed {use.name} with "
                                   f"{use.attributes!r}: {error!r}") from error
            found[id(node)] = result
            nodes.append(Made(use, operands, result))
        made = found[id(self.right)] if isinstance(self.right, Node) else match.types()[self.right]
        if made != match.result:
            raise RewriteError(
                f"rule {self.name!r} on {self._shown(match)} equates {match.result} with {made}; both sides of a "
                "rule have one type"
            )
        return tuple(nodes)

    def _shown(self, match: Match) -> str:
        parts = [f"{k}: {v}" for k, v in match.types().items()]
        parts += [f"{k}: {use.name}{use.attributes!r}" for k, use in match.uses().items()]
        return ", ".join(parts)

    def restricted(self) -> Rule:
        """Return a copy of the rule that applies only where it is bit-for-bit exact."""
        return replace(self, exact=True, _memo={})


def no_floats(match: Match) -> bool:
    """Sums and products of integers wrap, so their order never shows."""
    return not any(is_float(t.dtype) for t in match.all_types())


def rule(
    text: str,
    *,
    cases: Cases | None = None,
    name: str = "",
    mark: str = "=",
    exact_if: Callable[[Match], bool] | None = None,
    enabled_by: tuple[str, str] | None = None,
    says: str = "",
) -> Callable[[Function | None], Rule]:
    """A decorator that makes a rule of a function; ``rule(...)(None)`` is a rule without a condition.

    text: the equation, see `eggshard.egraph.patterns`. cases: instances for its law test, see `eggshard.egraph.laws`.
    name: the function's name with spaces unless given. mark: "=" or "ρ". exact_if: where a ρ rule is exact all the
    same; by default where no floating-point type occurs. enabled_by: ``(name, op)``: look for the left side only where
    the tensor or labelled op of this name is, but for pointwise ops, a result of ``op`` (a guard against growth where
    the rule holds everywhere and pays only before such an op). says: what happened to a step that the rule led to, in
    a few words for people; by default the name. Raises RewriteError for a malformed rule, or one without cases.
    """
    left, right = parse_rule(text)
    check_patterns(text, left, right)
    if mark not in MARKS:
        raise RewriteError(f"rule {text!r}: mark {mark!r} is none of {', '.join(MARKS)}")
    if cases is None:
        raise RewriteError(f"rule {text!r} names no cases; a rule without a law test does not load")
    if enabled_by is not None and enabled_by[0] not in (*variables(left), *(n.label for n in postorder(left))):
        raise RewriteError(f"rule {text!r}: {enabled_by[0]!r} of enabled_by does not occur on the left")
    new = {n.label for n in postorder(right) if n.label} - {n.label for n in postorder(left)}

    def decorate(function: Function | None) -> Rule:
        if function is None and (new or not name):
            raise RewriteError(f"rule {text!r}: without a function it needs a name, and no new labels {sorted(new)}")
        named = name or function.__name__.strip("_").replace("_", " ")  # type: ignore[union-attr]
        holds = exact_if or ((lambda match: True) if mark == "=" else no_floats)
        return Rule(named, text, left, right, mark, function, cases, holds, enabled_by,
                    says=says or named)

    return decorate


class RuleList(list[Rule]):
    """A topic's rules in order; `add` is `rule` that also appends."""

    def add(self, text: str, **options: Any) -> Callable[[Function | None], Rule]:
        """`rule`, and the rule is appended to this list."""
        decorate = rule(text, **options)

        def decorate_and_append(function: Function | None) -> Rule:
            made = decorate(function)
            self.append(made)
            return made

        return decorate_and_append


def select(rules: Iterable[Rule], exact: bool = False) -> list[Rule]:
    """The rules to run: all of them, or under ``exact`` all of them only where they are bit for bit equal.

    Raises RewriteError for what is no rule, or for two rules of one name.
    """
    if not isinstance(rules, Iterable):
        raise RewriteError(f"rewrites={rules!r} is no sequence of rules; give a list, e.g. default_rules() + [mine]")
    chosen: dict[str, Rule] = {}
    for made in rules:
        if not isinstance(made, Rule):
            raise RewriteError(f"{made!r} is no rewrite rule; make one with eggshard.rewrites.rule")
        if made.name in chosen and chosen[made.name] is not made:
            raise RewriteError(f"two rewrite rules are named {made.name!r}")
        chosen[made.name] = made.restricted() if exact and made.mark != "=" else made
    return list(chosen.values())
