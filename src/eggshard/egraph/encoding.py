"""Encoding of a region as rows of integers, and decoding of rows as an e-graph.

Ids of ops, attributes and types are numbered per region, in order of appearance, so that equal regions and rules give
equal rows whatever ran before.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

from eggshard.egraph.compilation import Compiled, Table, load_number
from eggshard.egraph.graph import EClass, EGraph, ENode, RunReport
from eggshard.egraph.outcome import Columns
from eggshard.ops import registry
from eggshard.program.attributes import Attributes
from eggshard.program.program import Op, Region
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
    """All of an e-node but which classes its operands are: op, attributes, types. ``salt`` > 0: unlike every other."""

    op: str
    attributes: Attributes
    operands: Types
    results: Types
    regions: tuple[Region, ...] = ()
    is_tuple: bool = False
    salt: int = 0


class Row(NamedTuple):
    """A node of the program: the value it computes, its payload's id, and operand values."""

    value: int
    payload: int
    operands: tuple[int, ...]


class RegionRows:
    """A region's values and nodes. Results of multi-result ops are projections of an extra value, their tuple."""

    def __init__(self, region: Region, ops: tuple[str, ...] = ()):
        self.ops = Interner(ops)
        self.payloads: Interner[Payload] = Interner()
        self.rows: list[Row] = []
        #: The value that each value of the region is equal to: constraints on shardings are identities.
        self.same = list(range(len(region.types)))
        #: The values of ops with effects, in program order.
        self.effects: list[int] = []
        self._types = region.types
        self._extra = len(region.types)
        for i, v in enumerate(region.inputs):
            self._add(v, Payload("input", Attributes(index=i), (), (region.types[v],)), ())
        for op in region.ops:
            self._op(op)

    def _add(self, value: int, payload: Payload, operands: tuple[int, ...]) -> None:
        self.rows.append(Row(value, self.payloads.id(payload), operands))

    def _op(self, op: Op) -> None:
        types = self._types
        operands = tuple(self.same[v] for v in op.operands)
        if op.name == "sharding_constraint":
            self.same[op.results[0]] = operands[0]
            return
        if op.name == "sharding_group":
            return
        salt = 0 if registry.is_pure(op.name, op.regions) else len(self.rows) + 1
        results = tuple(types[v] for v in op.results)
        payload = Payload(
            op.name, op.attributes, tuple(types[v] for v in operands), results, op.regions, len(results) != 1, salt
        )
        if not payload.is_tuple:
            self._add(op.results[0], payload, operands)
            self.effects += [op.results[0]] if salt else []
            return
        whole, self._extra = self._extra, self._extra + 1
        self.effects += [whole] if salt else []
        self._add(whole, payload, operands)
        for i, (v, type_) in enumerate(zip(op.results, results, strict=True)):
            self._add(v, Payload("result", Attributes(index=i), (), (type_,)), (whole,))

    def tables(self, compiled: Compiled) -> dict[str, list[tuple[int, ...]]]:
        """The rows of the relations ``in_<arity>`` (`eggshard.egraph.compilation.generic_tables`)."""
        out: dict[str, list[tuple[int, ...]]] = {}
        for row in self.rows:
            arity, payload = len(row.operands), self.payloads.items[row.payload]
            table = compiled.table(payload.op, arity, not payload.salt and not payload.regions)
            out.setdefault(f"in_{arity}", []).append(
                (load_number(compiled, table), row.value, self.ops.id(payload.op), row.payload, *row.operands)
            )
        return out

    @property
    def arities(self) -> set[int]:
        return {len(row.operands) for row in self.rows}


def program_graph(rows: RegionRows, report: RunReport | None = None) -> EGraph:
    """The e-graph of the region alone: equal nodes are shared, nothing is rewritten."""
    classes: list[EClass] = []
    of_value: dict[int, int] = {}
    seen: dict[tuple[int, tuple[int, ...]], int] = {}
    for row in rows.rows:
        children = tuple(of_value[v] for v in row.operands)
        key = (row.payload, children)
        if key not in seen:
            seen[key] = len(classes)
            payload = rows.payloads.items[row.payload]
            classes.append(EClass(payload.results, [_node(payload, children, ())], payload.is_tuple))
        of_value[row.value] = seen[key]
    return EGraph(
        classes, [of_value[v] for v in rows.same], report or RunReport(), [of_value[v] for v in rows.effects]
    )


def read_graph(
    rows: RegionRows, node_tables: list[Table], tables: Mapping[str, Columns], rule_names: list[str], report: RunReport
) -> EGraph:
    """The e-graph that the engine's tables hold. Nodes that compute a class from itself are left out."""
    of_value: dict[int, int] = dict(zip(*tables["V"], strict=True)) if rows.rows else {}
    own = [(row.payload, tuple(of_value[v] for v in row.operands)) for row in rows.rows]
    made: dict[tuple[int, tuple[int, ...]], tuple[int, tuple[str, ...]]] = {}
    for table in node_tables:
        if table.name not in tables:
            continue
        by = tables.get(f"by_{table.name}")
        made_by = {tuple(key): (rule_names[rule],) for *key, rule in _rows(by)} if by is not None else {}
        first = 0 if table.op else 1
        for *key, cls in _rows(tables[table.name]):
            if cls not in key[first + 1:]:
                made[key[first], tuple(key[first + 1:])] = cls, made_by.get(tuple(key), ())
    count = 1 + max(max((cls for cls, _ in made.values()), default=-1), *of_value.values(), -1)
    classes = [EClass(()) for _ in range(count)]

    def add(identity: tuple[int, tuple[int, ...]], cls: int, names: tuple[str, ...]) -> None:
        payload = rows.payloads.items[identity[0]]
        classes[cls].types, classes[cls].is_tuple = payload.results, payload.is_tuple
        classes[cls].nodes.append(_node(payload, identity[1], names))

    for identity in own:  # the program's own nodes first, in its order
        if identity in made:
            add(identity, made.pop(identity)[0], ())
    for identity, (cls, names) in made.items():
        add(identity, cls, names)
    return EGraph(classes, [of_value[v] for v in rows.same], report, [of_value[v] for v in rows.effects])


def _rows(columns: Columns) -> Iterator[tuple[int, ...]]:
    return zip(*columns, strict=True)


def _node(payload: Payload, children: tuple[int, ...], rules: tuple[str, ...]) -> ENode:
    return ENode(payload.op, payload.attributes, payload.regions, children, rules)
