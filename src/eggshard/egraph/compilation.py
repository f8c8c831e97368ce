"""Compilation of rewrite rules to an egglog program.

Every e-node is a row: pointwise ops of n operands share the table ``E<n>`` with columns (op, payload, operands...), so
that one rule covers them all; other ops that rules mention have a table of their own per arity; all else lies in
``N<n>``. Ops and payloads are interned integers; a payload is an op with its attributes and its operands' types, so
what a rule must know of its tensors stands in the nodes that it matches. ``V`` maps the program's values to classes.

A left side becomes a *find* rule, which puts (pattern, payloads...) into ``demand``. A rule becomes an *apply* rule:
where its left side matches and ``answer`` has a row for the payloads, build the right side with the payloads that the
row gives, and unite it with the left side. Between iterations Python answers the demands.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from eggshard.egraph.patterns import Node, Pattern, is_pointwise, postorder, variables
from eggshard.egraph.rules import Rule

#: Largest arity of ops for which generic tables are declared ahead.
COMMON_ARITY = 8


class Table(NamedTuple):
    """Where an op's nodes lie. ``op``: "" if the op is a column."""

    name: str
    op: str
    arity: int


class Compiled(NamedTuple):
    """A rule set as an egglog program.

    base: texts to run in order, a rule each: every parsed node keeps a copy of its whole text. tables: node tables by
    (op, arity) of ops with a table of their own. ops: interned op names, by number. demands: names of
    demand relations. users: per pattern number the numbers of its rules.
    """

    base: tuple[str, ...]
    tables: dict[tuple[str, int], Table]
    ops: tuple[str, ...]
    demands: tuple[str, ...]
    users: tuple[tuple[int, ...], ...]

    @property
    def node_tables(self) -> tuple[Table, ...]:
        """The tables declared for nodes."""
        pointwise = (Table(f"E{n}", "", n) for n in (1, 2, 3))
        return (*self.tables.values(), *pointwise, *(Table(f"N{n}", "", n) for n in range(COMMON_ARITY + 1)))

    def table(self, op: str, arity: int, mergeable: bool = True) -> Table:
        """The table of an op's nodes. What must not be rewritten, or is unknown to the rules, lies in a generic one."""
        own = self.tables.get((op, arity))
        if own is not None and mergeable:
            return own
        return Table(f"E{arity}" if mergeable and 1 <= arity <= 3 and is_pointwise(op) else f"N{arity}", "", arity)


def compile_rules(rules: Sequence[Rule]) -> Compiled:
    """The egglog program of a rule set; remembered for rule sets seen before."""
    return _compile(tuple(rules))


@lru_cache(maxsize=16)
def _compile(rules: tuple[Rule, ...]) -> Compiled:
    nodes = [n for r in rules for side in (r.left, r.right) for n in postorder(side)]
    tables = {
        (n.op, len(n.children)): Table(f"{n.op.replace('.', '_')}_{len(n.children)}", n.op, len(n.children))
        for n in nodes if not n.is_family and not is_pointwise(n.op)
    }
    ops = tuple(dict.fromkeys(n.op for n in nodes if not n.is_family))
    writer = _Writer(Compiled((), tables, ops, (), ()))
    texts = [text for k, r in enumerate(rules) for text in writer.rule(k, r)]
    demands = tuple(f"demand_{n}" for n in sorted(writer.demands))
    compiled = writer.compiled._replace(demands=demands, users=tuple(map(tuple, writer.users)))
    schema = [
        "(sort T) (ruleset load) (ruleset find) (ruleset apply) (ruleset forget)",
        "(constructor V (i64) T :unextractable)",
        *(_node_table(t) for t in tables.values()),
        *(_node_table(Table(f"E{n}", "", n)) for n in (1, 2, 3)),
        *(generic_tables(compiled, n) for n in range(COMMON_ARITY + 1)),
        *(f"(relation demand_{n} ({'i64 ' * n}))"
          f"(rule ((demand_{n} {_names('c', n)})) ((delete (demand_{n} {_names('c', n)}))) :ruleset forget)"
          for n in sorted(writer.demands)),
        *(f"(relation answer_{n}_{m} ({'i64 ' * (n + m)}))" for n, m in sorted(writer.answers)),
    ]
    schema += [_origin_rules(compiled, op) for op in dict.fromkeys(r.enabled_by[1] for r in rules if r.enabled_by)]
    return compiled._replace(base=(*schema, *texts))


def _origin(op: str) -> str:
    return f"from_{op.replace('.', '_')}"


def _origin_rules(compiled: Compiled, op: str) -> str:
    """The relation of classes that are, but for pointwise ops, results of an op."""
    name, pointwise = _origin(op), []
    for n in (1, 2, 3):
        term = f"(E{n} o p {_names('x', n)})"
        pointwise += [f"(rule ((= e {term}) ({name} x{i})) (({name} e)) :ruleset apply)" for i in range(n)]
    sources = [
        f"(rule ((= e ({t.name} p {_names('x', t.arity)}))) (({name} e)) :ruleset apply)"
        for t in compiled.tables.values() if t.op == op
    ]
    return f"(relation {name} (T))" + "".join([*sources, *pointwise])


def generic_tables(compiled: Compiled, arity: int) -> str:
    """Declares the table of other ops of an arity, the relation ``in_<arity>`` through which nodes of that arity are
    loaded, and the rules from its rows (table, value, op, payload, operand values...) to nodes.

    Table -1 is the generic one, -2 that of pointwise ops, else it is the op's number.
    """
    operands = " ".join(f"(V x{i})" for i in range(arity))
    targets = [(-1, f"(N{arity} o p {operands})")]
    if 1 <= arity <= 3:
        targets.append((-2, f"(E{arity} o p {operands})"))
    targets += [
        (compiled.ops.index(t.op), f"({t.name} p {operands})") for t in compiled.tables.values() if t.arity == arity
    ]
    rules = "".join(
        f"(rule ((in_{arity} {number} v o p {_names('x', arity)})) ((union (V v) {term})) :ruleset load)"
        for number, term in targets
    )
    return f"(constructor N{arity} (i64 i64{' T' * arity}) T)(relation in_{arity} ({'i64 ' * (4 + arity)})){rules}"


def load_number(compiled: Compiled, table: Table) -> int:
    """How the rules of `generic_tables` call a table."""
    return compiled.ops.index(table.op) if table.op else -2 if table.name[0] == "E" else -1


def _names(prefix: str, count: int) -> str:
    return " ".join(f"{prefix}{i}" for i in range(count))


def _node_table(table: Table) -> str:
    """A table of nodes that rules make, and the function that remembers which rule made a node first."""
    key = ("i64 " if table.op else "i64 i64 ") + "T " * table.arity
    return f"(constructor {table.name} ({key}) T)(function by_{table.name} ({key}) i64 :merge old)"


class _Writer:
    """Writes rules, and collects which relations they need and which left sides they share."""

    def __init__(self, compiled: Compiled):
        self.compiled = compiled
        self.numbers = {op: i for i, op in enumerate(compiled.ops)}
        self.demands: set[int] = set()
        self.answers: set[tuple[int, int]] = set()
        self.users: list[list[int]] = []
        self._patterns: dict[str, int] = {}

    def rule(self, k: int, rule: Rule) -> list[str]:
        """The egglog rules of rule number k; *find* only if no earlier rule has the same left side."""
        tensors = {name: f"x{i}" for i, name in enumerate(variables(rule.left))}
        left = list(postorder(rule.left))
        names = {id(n): f"n{i}" for i, n in enumerate(left)}
        body = " ".join(
            f"(= n{i} {self._term(n, f'p{i}', names, tensors, f'o{i}')})" for i, n in enumerate(left)
        )
        if rule.enabled_by is not None:
            name, op = rule.enabled_by
            holder = tensors.get(name) or next(names[id(n)] for n in left if n.label == name)
            body += f" ({_origin(op)} {holder})"
        root = names[id(rule.left)]
        right = list(postorder(rule.right))
        captured = {n.label: f"o{i}" for i, n in enumerate(left) if n.is_family}
        actions = self._actions(k, rule.right, right, tensors, captured, root)
        if rule.function is None and not right and not rule.exact:
            return [f'(rule ({body}) ({actions}) :ruleset apply :name "{k}")']
        payloads, given = _names("p", len(left)), _names("q", len(right))
        texts = []
        if body not in self._patterns:
            number = self._patterns[body] = len(self.users)
            self.users.append([])
            self.demands.add(1 + len(left))
            texts.append(f"(rule ({body}) ((demand_{1 + len(left)} {number} {payloads}))"
                         f' :ruleset find :name "find {number}")')
        self.users[self._patterns[body]].append(k)
        self.answers.add((1 + len(left), len(right)))
        texts.append(f"(rule ({body} (answer_{1 + len(left)}_{len(right)} {k} {payloads} {given})) ({actions})"
                     f' :ruleset apply :name "{k}")')
        return texts

    def _term(self, node: Node, payload: str, names: dict[int, str], tensors: dict[str, str], op: str) -> str:
        """The row of a node; ``op`` is the variable for a family's op."""
        table = self._table(node)
        columns = [] if table.op else [op if node.is_family else str(self.numbers[node.op])]
        children = [tensors[c] if isinstance(c, str) else names[id(c)] for c in node.children]
        return f"({table.name} {' '.join([*columns, payload, *children])})"

    def _table(self, node: Node) -> Table:
        if node.is_family:
            return Table(f"E{len(node.children)}", "", len(node.children))
        return self.compiled.table(node.op, len(node.children))

    def _actions(
        self, k: int, root: Pattern, nodes: list[Node], tensors: dict[str, str], captured: dict[str, str], left: str
    ) -> str:
        if isinstance(root, str):
            return f"(union {left} {tensors[root]})"
        names = {id(n): f"m{i}" for i, n in enumerate(nodes)}
        actions = []
        for i, node in enumerate(nodes):
            term = self._term(node, f"q{i}", names, tensors, captured.get(node.label, ""))
            actions.append(f"(union {left} {term})" if node is root else f"(let m{i} {term})")
            actions.append(f"(set (by_{term[1:]} {k})")
        return " ".join(actions)
