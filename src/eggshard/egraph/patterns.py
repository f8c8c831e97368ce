"""The notation of rewrite rules: ``transpose[outer](transpose[inner](x)) => transpose[both](x)``.

A name with parentheses is an op of the registry, a bare name a tensor. ``[label]`` names an op's attributes: on the
left it captures them (the same label twice: they must be equal), on the right it uses captured ones, or new ones that
the rule's function computes. ``unary[f]``, ``binary[f]`` and ``ternary[f]`` stand for any pointwise op of that many
operands; the label then also captures which op it is. An op without a label has any attributes on the left and none
on the right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from eggshard.errors import RewriteError
from eggshard.ops import registry

#: Pattern names that match any pointwise op, and how many operands such an op has.
FAMILIES = {"unary": 1, "binary": 2, "ternary": 3}
_TOKEN = re.compile(r"\s*([A-Za-z_][\w.]*|=>|[()\[\],])")


@dataclass(frozen=True, slots=True)
class Node:
    """An op in a pattern; children are nodes or names of tensors."""

    op: str
    label: str
    children: tuple[Node | str, ...]

    @property
    def is_family(self) -> bool:
        return self.op in FAMILIES


Pattern = Node | str


def parse_rule(text: str) -> tuple[Node, Pattern]:
    """Both sides of a rule; RewriteError for text of another form."""
    tokens: list[str] = []
    at, stripped = 0, text.rstrip()
    while at < len(stripped):
        match = _TOKEN.match(stripped, at)
        if match is None:
            raise RewriteError(f"rule {text!r}: cannot read {stripped[at:at + 20]!r}")
        tokens.append(match[1])
        at = match.end()
    tokens.append("")
    position = 0

    def take(expected: str = "") -> str:
        nonlocal position
        token = tokens[position]
        if (expected and token != expected) or not token:
            wanted = repr(expected) if expected else "a name"
            raise RewriteError(f"rule {text!r}: expected {wanted}, found {token or 'the end'!r}")
        position += 1
        return token

    def pattern() -> Pattern:
        name, label = take(), ""
        if not name[0].isalpha() and name[0] != "_":
            raise RewriteError(f"rule {text!r}: expected a name, found {name!r}")
        if tokens[position] == "[":
            take()
            label = take()
            take("]")
        elif tokens[position] != "(":
            return name
        take("(")
        children: list[Pattern] = []
        while tokens[position] != ")":
            if children:
                take(",")
            children.append(pattern())
        take(")")
        return Node(name, label, tuple(children))

    left = pattern()
    take("=>")
    right = pattern()
    if tokens[position]:
        raise RewriteError(f"rule {text!r}: {tokens[position]!r} is left over")
    if isinstance(left, str):
        raise RewriteError(f"rule {text!r}: the left side must be an op")
    return left, right


def postorder(pattern: Pattern) -> Iterator[Node]:
    """The nodes of a pattern, operands before their users."""
    if isinstance(pattern, Node):
        for child in pattern.children:
            yield from postorder(child)
        yield pattern


def variables(pattern: Pattern) -> tuple[str, ...]:
    """The tensors of a pattern in order of appearance."""
    if isinstance(pattern, str):
        return (pattern,)
    return tuple(dict.fromkeys(v for child in pattern.children for v in variables(child)))


def is_pointwise(op: str) -> bool:
    """Whether an op's result element depends on the operands' elements at its own index alone."""
    return registry.known(op) and registry.get(op).pointwise


def check_patterns(text: str, left: Node, right: Pattern) -> None:
    """RewriteError unless every name of the rule is known and bound where it is used."""
    captured: dict[str, str] = {}
    tensors = set(variables(left))
    for side, root in (("left", left), ("right", right)):
        for node in postorder(root):
            if node.is_family:
                if not node.label or len(node.children) != FAMILIES[node.op]:
                    raise RewriteError(
                        f"rule {text!r}: {node.op} needs a label and {FAMILIES[node.op]} operand(s)"
                    )
            elif not registry.known(node.op):
                raise RewriteError(f"rule {text!r}: {registry.unknown(node.op)}")
            if side == "left":
                if node.label in tensors:
                    raise RewriteError(f"rule {text!r}: {node.label!r} is both a label and a tensor")
                if not node.label and not is_pointwise(node.op):
                    raise RewriteError(f"rule {text!r}: {node.op} on the left needs a label for its attributes")
                if node.label and captured.setdefault(node.label, node.op) != node.op:
                    raise RewriteError(f"rule {text!r}: label {node.label!r} is on two different ops")
            elif node.is_family and captured.get(node.label) != node.op:
                raise RewriteError(f"rule {text!r}: {node.op}[{node.label}] does not occur on the left")
    unbound = set(variables(right)) - tensors
    if unbound:
        raise RewriteError(f"rule {text!r}: {', '.join(sorted(unbound))} on the right does not occur on the left")
