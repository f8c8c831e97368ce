"""Equality saturation, from a program and rules to a frozen e-graph.

The engine runs in the worker process, the rules' functions run here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import eggshard.worker as worker
from eggshard.egraph.compilation import COMMON_ARITY, Compiled, Table, compile_rules, generic_tables
from eggshard.egraph.encoding import Payload, RegionRows, program_graph, read_graph
from eggshard.egraph.graph import EGraph, RunReport
from eggshard.egraph.rules import Instance, OpUse, Rule
from eggshard.limits import Limits
from eggshard.program.mesh import Mesh
from eggshard.program.program import Program, Region
from eggshard.program.types import TensorType

#: Fractions of the search's seconds after which no iteration starts, and after which a call in flight is killed.
_SOFT_SHARE, _HARD_SHARE = 0.5, 0.75
#: Fraction of the row limit above which only rules that simplify are answered, not those that add ops.
_GROWING_SHARE = 0.5
_ADAPTER = "eggshard.egraph.adapter"


def saturate(
    program: Program | Region, rules: Sequence[Rule], limits: Limits | None = None, mesh: Mesh | None = None
) -> EGraph:
    """The e-graph of a program under rules, saturated as far as the limits allow.

    mesh: for rules that depend on how many shards there can be; a Program's own one unless given.

    Ends in a valid e-graph always: if the worker process dies, the run is repeated with half the rows, and after
    that the program's own graph is returned with ``report.stop`` saying why. Raises RewriteError if a rule's function
    fails or makes ill-typed terms.
    """
    region = program.region if isinstance(program, Program) else program
    mesh = program.mesh if mesh is None and isinstance(program, Program) else mesh
    limits = limits or Limits()
    began = time.monotonic()
    if not rules:
        return program_graph(RegionRows(region))
    compiled = compile_rules(rules)
    failures: list[worker.WorkerFailure] = []
    most = limits.rows_for(len(region.ops))
    for max_rows in (most, most // 2):
        try:
            graph = _Run(region, rules, compiled, limits, max_rows, began, mesh).graph()
            late = graph.report.stop == "seconds" or _killed(failures)
            return replace(graph, report=replace(graph.report, notes=_messages(failures), late=late))
        except worker.WorkerFailure as error:
            failures.append(error)
    report = RunReport(
        stop=f"worker: {failures[-1].reason}", seconds=time.monotonic() - began, notes=_messages(failures),
        rows=len(region.ops) + len(region.inputs), late=_killed(failures),
    )
    return program_graph(RegionRows(region), report)


def _killed(failures: Sequence[worker.WorkerFailure]) -> bool:
    return any(failure.reason == "time" for failure in failures)


def _messages(failures: Sequence[worker.WorkerFailure]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(str, failures)))


def warm(rules: Sequence[Rule]) -> threading.Thread:
    """Start the worker and make the engine for these rules, in the background."""
    compiled = compile_rules(rules)

    def prepare() -> None:
        try:
            worker.call(f"{_ADAPTER}:prepare", compiled.base, seconds=60.0)
        except worker.WorkerFailure:
            pass  # the first real call will meet it again, and say so

    thread = threading.Thread(target=prepare, daemon=True)
    thread.start()
    return thread


class _Run:
    """One saturation."""

    def __init__(
        self, region: Region, rules: Sequence[Rule], compiled: Compiled, limits: Limits, max_rows: int, began: float,
        mesh: Mesh | None,
    ):
        self.shard_counts = () if mesh is None else mesh.shard_counts
        self.rules, self.compiled, self.limits, self.max_rows = rules, compiled, limits, max_rows
        self.began = began
        self.soft, self.hard = began + limits.seconds * _SOFT_SHARE, began + limits.seconds * _HARD_SHARE
        self.rows = RegionRows(region, compiled.ops)
        self._seen: set[tuple[int, ...]] = set()

    def call(self, function: str, *args: Any) -> Any:
        seconds = max(0.1, self.hard - time.monotonic())
        return worker.call(f"{_ADAPTER}:{function}", *args, seconds=seconds, memory_mib=self.limits.memory_mib)

    def graph(self) -> EGraph:
        asked = time.monotonic()
        with worker.worker().lock:
            waited = time.monotonic() - asked  # for a worker that starts, or serves another thread: no time of this run
            self.soft, self.hard = self.soft + waited, self.hard + waited
            return self._graph()

    def _graph(self) -> EGraph:
        compiled = self.compiled
        unusual = sorted(a for a in self.rows.arities if a > COMMON_ARITY)
        nodes = [*compiled.node_tables, *(Table(f"N{n}", "", n) for n in unusual)]
        names = ["V", *(t.name for t in nodes), *(f"by_{t.name}" for t in nodes)]
        asked = time.monotonic()
        outcome = self.call(
            "begin", compiled.base, "".join(generic_tables(compiled, a) for a in unusual), self.rows.tables(compiled),
            compiled.demands, [t.name for t in nodes],
        )
        self.soft += time.monotonic() - asked  # a worker that must start first takes nothing from the iterations
        stop, iterations = "iterations", 0
        answers = self._answer(outcome.watched, outcome.rows)
        while iterations < self.limits.iterations:
            if time.monotonic() > self.soft:
                stop = "seconds"
                break
            outcome = self.call("step", answers, compiled.demands, self.max_rows, names, "T")
            iterations += 1
            if outcome.undone or outcome.rows > self.max_rows:
                stop = "rows"
                break
            answers = self._answer(outcome.watched, outcome.rows)
            if not outcome.changed and not answers:
                stop = "saturated"
                break
        tables, matches = outcome.result or self.call("finish", names, "T")
        report = RunReport(
            stop, iterations, outcome.rows, time.monotonic() - self.began,
            {r.name: matches[str(k)] for k, r in enumerate(self.rules) if str(k) in matches},
        )
        return read_graph(self.rows, nodes, tables, [r.name for r in self.rules], report)

    def _answer(self, watched: dict[str, list[tuple[int, ...]]], rows: int) -> dict[str, list[tuple[int, ...]]]:
        """Rows for the answer tables: what the rules' functions say to demands not met before."""
        growing = rows <= self.max_rows * _GROWING_SHARE
        payloads = self.rows.payloads
        out: dict[str, list[tuple[int, ...]]] = {}
        for name in sorted(watched):
            for row in watched[name]:
                if row in self._seen:
                    continue
                self._seen.add(row)
                matched = [payloads.items[i] for i in row[1:]]
                for k in self.compiled.users[row[0]]:
                    rule = self.rules[k]
                    if not growing and rule.growth > 0:
                        continue
                    for instance in self._instances(rule, matched):
                        made = [payloads.id(Payload(n.use.name, n.use.attributes, n.operands, (n.result,)))
                                for n in instance]
                        out.setdefault(f"answer_{len(row)}_{len(made)}", []).append((k, *row[1:], *made))
        return out

    def _instances(self, rule: Rule, matched: list[Payload]) -> tuple[Instance, ...]:
        uses: dict[str, OpUse] = {}
        types: dict[str, TensorType] = {}
        for node, payload in zip(rule.left_nodes, matched, strict=True):
            if node.label:
                use = OpUse(payload.op, payload.attributes)
                if uses.setdefault(node.label, use) != use:
                    return ()
            for child, type_ in zip(node.children, payload.operands, strict=True):
                if isinstance(child, str):
                    types[child] = type_
        return rule.instances(tuple(uses.values()), tuple(types[v] for v in rule.tensors), self.shard_counts)
