"""A region as rows of integers, and rows of integers as an e-graph.

Ids of ops, attributes and types are given anew for every region, in order of appearance: the same region and rules
give the same rows, whatever ran before.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from eggshard.egraph.compilation import Compiled, Table, load_number
from eggshard.egraph.graph import EClass, EGraph, ENode, RunReport
from eggshard.errors import ProgramError
from eggshard.program.ops import registry
from eggshard.program.program import Attributes, Op, Region
from eggshard.program.types import TensorType

Types = tuple[TensorType, ...]
K = TypeVar("K", bound=Hashable)


class Interner(Generic[K]):
    """Consecutive integers for hashable things."""

    def __init__(self, items: tuple[K, ...] = ()):
        self.items: list[K] = list(items)
        self._ids: dict[K, int] = {item: i for i, item in enumerate(items)}

    def id(self, item: K) -> int:
        found = self._ids.get(item)
        if found is None:
            found = self._ids[item] = len(self.items)
            self.items.append(item)
        return found


class Payload(NamedTuple):
    """What an e-node carries besides its op. ``salt`` > 0 makes a node unlike every other."""

    attributes: Attributes
    regions: tuple[Region, ...] = ()
    salt: int = 0


class Kind(NamedTuple):
    """What a class holds: one tensor, or a tuple of results."""

    types: Types
    is_tuple: bool = False


class Row(NamedTuple):
    """A node of the program: the value it computes, its op, payload id, and operand values."""

    value: int
    op: str
    payload: int
    operands: tuple[int, ...]
    kind: int
    mergeable: bool


def is_pure(op: str, regions: tuple[Region, ...]) -> bool:
    """Whether equal nodes of this op are one: neither it nor an op in its regions has effects."""
    return (not registry.known(op) or registry.get(op).pure) and all(
        is_pure(inner.name, inner.regions) for region in regions for inner in region.ops
    )


class RegionRows:
    """A region's values and nodes. Results of multi-result ops are projections of an extra value, their tuple."""

    def __init__(self, region: Region, ops: tuple[str, ...] = ()):
        self.region = region
        self.ops = Interner(ops)
        self.payloads: Interner[Payload] = Interner((Payload(Attributes()),))
        self.kinds: Interner[Kind] = Interner()
        self.rows: list[Row] = []
        #: The value that each value of the region is equal to: constraints on shardings are identities.
        self.same = list(range(len(region.types)))
        self._extra = len(region.types)
        for i, v in enumerate(region.inputs):
            self._add(v, "input", Payload(Attributes(index=i)), (), Kind((region.types[v],)))
        for op in region.ops:
            self._op(op)

    def _add(self, value: int, op: str, payload: Payload, operands: tuple[int, ...], kind: Kind) -> None:
        self.ops.id(op)
        mergeable = not payload.salt and not payload.regions
        self.rows.append(Row(value, op, self.payloads.id(payload), operands, self.kinds.id(kind), mergeable))

    def _op(self, op: Op) -> None:
        types = self.region.types
        if any(not 0 <= v < len(types) for v in op.operands):
            raise ProgramError(f"{op.name} at {op.location or 'an unknown place'} uses values that do not exist")
        operands = tuple(self.same[v] for v in op.operands)
        if op.name == "sharding_constraint":
            self.same[op.results[0]] = operands[0]
            return
        salt = 0 if is_pure(op.name, op.regions) else len(self.rows) + 1
        payload = Payload(op.attributes, op.regions, salt)
        if len(op.results) == 1:
            self._add(op.results[0], op.name, payload, operands, Kind((types[op.results[0]],)))
            return
        whole, self._extra = self._extra, self._extra + 1
        self._add(whole, op.name, payload, operands, Kind(tuple(types[v] for v in op.results), True))
        for i, v in enumerate(op.results):
            self._add(v, "result", Payload(Attributes(index=i)), (whole,), Kind((types[v],)))

    @property
    def count(self) -> int:
        """The number of values, tuples included."""
        return self._extra

    def tables(self, compiled: Compiled) -> dict[str, list[tuple[int, ...]]]:
        """The rows of the relations ``in_<arity>`` (`eggshard.egraph.compilation.load_rules`)."""
        out: dict[str, list[tuple[int, ...]]] = {}
        for row in self.rows:
            arity = len(row.operands)
            table = compiled.table(row.op, arity, row.mergeable)
            out.setdefault(f"in_{arity}", []).append(
                (load_number(compiled, table), row.value, row.kind, self.ops.id(row.op), row.payload, *row.operands)
            )
        return out

    @property
    def arities(self) -> set[int]:
        return {len(row.operands) for row in self.rows}


def program_graph(rows: RegionRows, report: RunReport | None = None) -> EGraph:
    """The e-graph of the region alone: equal nodes are shared, nothing is rewritten."""
    classes: list[EClass] = []
    of_value: dict[int, int] = {}
    seen: dict[tuple[str, int, tuple[int, ...]], int] = {}
    for row in rows.rows:
        children = tuple(of_value[v] for v in row.operands)
        key = (row.op, row.payload, children)
        if key not in seen:
            seen[key] = len(classes)
            kind, payload = rows.kinds.items[row.kind], rows.payloads.items[row.payload]
            node = ENode(row.op, payload.attributes, payload.regions, children)
            classes.append(EClass(kind.types, [node], kind.is_tuple))
        of_value[row.value] = seen[key]
    return EGraph(classes, [of_value[v] for v in rows.same], report or RunReport())


def read_graph(
    rows: RegionRows, node_tables: list[Table], tables: dict[str, np.ndarray], rule_names: list[str], report: RunReport
) -> EGraph:
    """The e-graph that the engine's tables hold. Nodes that compute a class from itself are left out."""
    of_value = {value: cls for value, cls in tables["V"].tolist()}
    kinds = {cls: kind for cls, kind in tables["type"].tolist()}
    classes: list[EClass] = []
    for cls in range(len(kinds)):
        kind = rows.kinds.items[kinds[cls]]
        classes.append(EClass(kind.types, [], kind.is_tuple))
    own = {
        (row.op, row.payload, tuple(of_value[v] for v in row.operands)): None for row in rows.rows
    }
    made: dict[tuple[str, int, tuple[int, ...]], tuple[int, tuple[str, ...]]] = {}
    for table in node_tables:
        if table.name not in tables:
            continue
        by = tables.get(f"by_{table.name}")
        rules = {tuple(key): rule_names[rule] for *key, rule in by.tolist()} if by is not None else {}
        for *key, cls in tables[table.name].tolist():
            op, (payload, *children) = (table.op, key) if table.op else (rows.ops.items[key[0]], key[1:])
            if cls in children:
                continue
            rule = rules.get(tuple(key))
            made[op, payload, tuple(children)] = cls, () if rule is None else (rule,)
    for identity in [i for i in own if i in made]:  # the program's own nodes first, in its order
        classes[made.pop(identity)[0]].nodes.append(_node(rows, identity, ()))
    for identity, (cls, names) in made.items():
        classes[cls].nodes.append(_node(rows, identity, names))
    return EGraph(classes, [of_value[v] for v in rows.same], report)


def _node(rows: RegionRows, identity: tuple[str, int, tuple[int, ...]], rules: tuple[str, ...]) -> ENode:
    op, payload, children = identity
    return ENode(op, rows.payloads.items[payload].attributes, rows.payloads.items[payload].regions, children, rules)
