"""From rewrite rules to an egglog program.

Every e-node is a row: pointwise ops of n operands share the table ``E<n>`` with columns (op, attributes, operands...),
so that one rule covers them all; other ops that rules mention have a table of their own per arity; all else lies in
``N<n>``. Ops and attributes are interned integers. ``V`` maps the program's values to classes, ``type`` classes to
interned types.

A rule becomes two. *find*: where the left side matches, put (rule, captured attributes, tensor types) into ``demand``.
*apply*: where it matches and ``answer`` has a row for that, build the right side with the attributes and types that
the row gives, and unite it with the left side. Between iterations Python answers the demands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from eggshard.egraph.patterns import Node, Pattern, is_pointwise, postorder
from eggshard.egraph.rules import Rule

#: Largest arity of ops for which generic tables are declared ahead.
_COMMON_ARITY = 8
#: Rules per parsed text: parsing takes quadratic time in the length of a text.
_CHUNK = 10


class Table(NamedTuple):
    """Where an op's nodes lie. ``op``: "" if the op is a column."""

    name: str
    op: str
    arity: int


class Compiled(NamedTuple):
    """A rule set as an egglog program.

    base: texts to run in order. tables: node tables by (op, arity) for ops with a table of their own. ops: interned op
    names, by number. demands: names of demand relations by key length. node_tables: names of all node tables.
    """

    base: tuple[str, ...]
    tables: dict[tuple[str, int], Table]
    ops: tuple[str, ...]
    demands: tuple[str, ...]

    def table(self, op: str, arity: int, pure: bool = True) -> Table:
        """The table of an op's nodes. Impure ops and ops unknown to the rules lie in a generic one."""
        own = self.tables.get((op, arity))
        if own is not None and pure:
            return own
        return Table(f"E{arity}" if pure and 1 <= arity <= 3 and is_pointwise(op) else f"N{arity}", "", arity)


def compile_rules(rules: Sequence[Rule]) -> Compiled:
    """The egglog program of a rule set; remembered for rule sets seen before."""
    return _compile(tuple(rules))


@lru_cache(maxsize=16)
def _compile(rules: tuple[Rule, ...]) -> Compiled:
    patterns = [side for r in rules for side in (r.left, r.right)]
    nodes = [n for p in patterns for n in postorder(p)]
    tables = {
        (n.op, len(n.children)): Table(f"{n.op.replace('.', '_')}_{len(n.children)}", n.op, len(n.children))
        for n in nodes if not n.is_family and not is_pointwise(n.op)
    }
    ops = tuple(dict.fromkeys(n.op for n in nodes if not n.is_family))
    compiled = Compiled((), tables, ops, ())
    numbers = {op: i for i, op in enumerate(ops)}
    lines = [rule_lines(compiled, numbers, k, r) for k, r in enumerate(rules)]
    demands = tuple(sorted({d for line in lines for d in line.demand}))
    schema = [
        "(sort T) (ruleset load) (ruleset find) (ruleset apply) (ruleset forget)"
        "(constructor V (i64) T :unextractable) (function type (T) i64 :no-merge)",
        *(_node_table(t) for t in tables.values()),
        *(_node_table(Table(f"E{n}", "", n)) for n in (1, 2, 3)),
        *(generic_tables(n) for n in range(_COMMON_ARITY + 1)),
        *(load_rules(compiled, n) for n in range(_COMMON_ARITY + 1)),
        *(f"(relation {name} ({'i64 ' * int(name.split('_')[1])}))"
          f"(rule (({name} {_names('c', int(name.split('_')[1]))}))"
          f" ((delete ({name} {_names('c', int(name.split('_')[1]))}))) :ruleset forget)" for name in demands),
        *(f"(relation {name} ({'i64 ' * sum(map(int, name.split('_')[1:]))}))"
          for name in sorted({a for line in lines for a in line.answer})),
    ]
    texts = [line.text for line in lines]
    chunks = ["\n".join(texts[i:i + _CHUNK]) for i in range(0, len(texts), _CHUNK)]
    return Compiled((*schema, *chunks), tables, ops, demands)


def generic_tables(arity: int) -> str:
    """Declares the table of other ops of an arity, and the relation through which nodes of that arity are loaded."""
    return f"(constructor N{arity} (i64 i64{' T' * arity}) T)(relation in_{arity} ({'i64 ' * (5 + arity)}))"


def load_rules(compiled: Compiled, arity: int) -> str:
    """Rules from rows (table, value, type, op, attributes, operand values...) of ``in_<arity>`` to nodes.

    Table -1 is the generic one, -2 that of pointwise ops, else it is the op's number.
    """
    operands = " ".join(f"(V x{i})" for i in range(arity))
    targets = [(-1, f"(N{arity} o a {operands})")]
    if 1 <= arity <= 3:
        targets.append((-2, f"(E{arity} o a {operands})"))
    targets += [
        (compiled.ops.index(t.op), f"({t.name} a {operands})") for t in compiled.tables.values() if t.arity == arity
    ]
    return "".join(
        f"(rule ((in_{arity} {number} v t o a {_names('x', arity)}))"
        f" ((union (V v) {term}) (set (type (V v)) t)) :ruleset load)"
        for number, term in targets
    )


def load_number(compiled: Compiled, table: Table) -> int:
    """How `load_rules` calls a table."""
    return compiled.ops.index(table.op) if table.op else -2 if table.name[0] == "E" else -1


def _names(prefix: str, count: int) -> str:
    return " ".join(f"{prefix}{i}" for i in range(count))


def _node_table(table: Table) -> str:
    """A table of nodes that rules make, and the function that remembers which rule made a node first."""
    key = ("i64 " if table.op else "i64 i64 ") + "T " * table.arity
    return f"(constructor {table.name} ({key}) T)(function by_{table.name} ({key}) i64 :merge old)"


class _Lines(NamedTuple):
    text: str
    demand: tuple[str, ...]
    answer: tuple[str, ...]


def rule_lines(compiled: Compiled, numbers: dict[str, int], k: int, rule: Rule) -> _Lines:
    """The egglog rules of rule number k."""
    body: list[str] = []
    keys: list[str] = []
    for label in rule.labels:
        if any(n.is_family for n in postorder(rule.left) if n.label == label):
            keys.append(f"o_{label}")
        keys.append(f"a_{label}")
    names = _name_nodes(rule.left, "n")

    def row(node: Node, names: dict[int, str], attribute: str) -> tuple[str, str]:
        """A node's table and arguments."""
        table = compiled.table(node.op, len(node.children)) if not node.is_family else Table(
            f"E{len(node.children)}", "", len(node.children))
        operands = [f"v_{c}" if isinstance(c, str) else names[id(c)] for c in node.children]
        op = [] if table.op else [f"o_{node.label}" if node.is_family else str(numbers[node.op])]
        return table.name, " ".join([*op, attribute, *operands])

    for i, node in enumerate(postorder(rule.left)):
        name, arguments = row(node, names, f"a_{node.label}" if node.label else f"u{i}")
        body.append(f"(= {names[id(node)]} ({name} {arguments}))")
    for tensor in rule.tensors:
        body.append(f"(= t_{tensor} (type v_{tensor}))")
        keys.append(f"t_{tensor}")
    root = names[id(rule.left)]
    if isinstance(rule.right, str):
        actions = [f"(union {root} v_{rule.right})"]
        given: list[str] = []
    else:
        actions, given = _actions(k, rule, row, root)
    condition = " ".join(body)
    demand, answer = f"demand_{1 + len(keys)}", f"answer_{1 + len(keys)}_{len(given)}"
    key = " ".join([str(k), *keys])
    if rule.function is None and isinstance(rule.right, str) and not rule.exact:
        return _Lines(f'(rule ({condition}) ({" ".join(actions)}) :ruleset apply :name "{k}")', (), ())
    text = (
        f'(rule ({condition}) (({demand} {key})) :ruleset find :name "find {k}")\n'
        f'(rule ({condition} ({answer} {key} {" ".join(given)})) ({" ".join(actions)}) :ruleset apply :name "{k}")'
    )
    return _Lines(text, (demand,), (answer,))


def _actions(
    k: int, rule: Rule, row: Callable[[Node, dict[int, str], str], tuple[str, str]], root: str
) -> tuple[list[str], list[str]]:
    """What a rule does, and the columns of its answers: new attributes, then the types of new inner nodes."""
    names = _name_nodes(rule.right, "m")
    captured, actions = set(rule.labels), []
    attributes = list(dict.fromkeys(
        f"b_{n.label}" for n in postorder(rule.right) if n.label and n.label not in captured
    ))
    types = []
    for node in postorder(rule.right):
        attribute = "0" if not node.label else f"a_{node.label}" if node.label in captured else f"b_{node.label}"
        table, arguments = row(node, names, attribute)
        if node is rule.right:
            actions.append(f"(union {root} ({table} {arguments}))")
        else:
            name = names[id(node)]
            actions += [f"(let {name} ({table} {arguments}))", f"(set (type {name}) t{name})"]
            types.append(f"t{name}")
        actions.append(f"(set (by_{table} {arguments}) {k})")
    return actions, attributes + types


def _name_nodes(pattern: Pattern, prefix: str) -> dict[int, str]:
    return {id(n): f"{prefix}{i}" for i, n in enumerate(postorder(pattern))}
