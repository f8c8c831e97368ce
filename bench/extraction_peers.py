"""Selection as others do it: the AND/OR integer program of the e-graph literature, and egglog's own extraction.

Both see the problem as an e-graph: one e-class per shard (a class of the problem at a placement), whose e-nodes are
the choices that compute it and the conversions to it. What they pick is priced as a DAG by the caller.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from eggshard.selection.exact.highs import Model
from eggshard.selection.graph import strong_components
from eggshard.selection.problem import Problem

#: Costs become whole numbers of which an average plan has so many.
SCALE = 10**9

Chosen = dict[int, tuple[int, ...]]


class Node(NamedTuple):
    """An e-node: its e-class, the e-classes that it needs, its cost, and the choice behind it (None: a conversion)."""

    out: int
    needs: tuple[int, ...]
    cost: float
    choice: tuple[int, int] | None


class ShardGraph:
    """The e-graph of shards that the roots may need.

    For the integer program what is computed and what is converted to are e-classes apart, so that conversions there and
    back are no circle; a tree never goes in one.
    """

    def __init__(self, problem: Problem, apart: bool) -> None:
        self.number: dict[tuple[int, int, bool], int] = {}
        self.nodes: list[Node] = []
        work = [(c, q, False) for c, q in problem.roots]
        self.roots = [self._class(shard) for shard in work]
        seen = set(work)
        while work:
            shard = work.pop()
            for needs, cost, choice in self._ways(problem, shard, apart):
                wanted = tuple(dict.fromkeys(needs))
                self.nodes.append(Node(self._class(shard), tuple(map(self._class, wanted)), cost, choice))
                new = [need for need in wanted if need not in seen]
                seen.update(new)
                work += new

    @staticmethod
    def _ways(problem: Problem, shard: tuple[int, int, bool], apart: bool) -> Iterator[
            tuple[list[tuple[int, int, bool]], float, tuple[int, int] | None]]:
        c, q, made = shard
        if made or not apart:
            for s, choice in enumerate(problem.choices[c]):
                if choice.out == q and choice.cost < math.inf:
                    yield [(a, p, False) for a, p in choice.needs], choice.cost, (c, s)
        if not made:
            for p in sorted({choice.out for choice in problem.choices[c] if choice.cost < math.inf}):
                if problem.conversions[c][p, q] < math.inf and (apart or p != q):
                    yield [(c, p, apart)], float(problem.conversions[c][p, q]), None

    def _class(self, shard: tuple[int, int, bool]) -> int:
        return self.number.setdefault(shard, len(self.number))


def and_or_program(problem: Problem, seconds: float, scale: float) -> tuple[Chosen | None, float]:
    """The choices of the best solution that HiGHS finds, and its bound.

    A variable per e-node and e-class; an e-class that is chosen has a chosen e-node, whose needs are chosen; order
    variables in every strongly connected component; one e-node at most of a class that may be computed once. ``scale``
    is the cost of some plan.
    """
    began = time.monotonic()
    graph = ShardGraph(problem, apart=True)
    classes, nodes = len(graph.number), graph.nodes
    operands: list[list[int]] = [[] for _ in range(classes)]
    for node in nodes:
        operands[node.out] += node.needs
    parts = strong_components(operands)
    part_of = {c: i for i, members in enumerate(parts) for c in members}
    model = Model()
    none, unit = np.zeros(0, np.int64), 1e3 / scale
    cost = [node.cost * unit for node in nodes] + [0.0] * (2 * classes)
    upper = [1.0] * (len(nodes) + classes) + [float(len(parts[part_of[c]])) for c in range(classes)]
    model.add_columns(np.array(cost), np.array(upper), none, none, np.zeros(0))
    y, t = len(nodes), len(nodes) + classes
    rows: list[dict[int, float]] = [{y + c: -1.0} for c in range(classes)]
    for n, node in enumerate(nodes):
        rows[node.out][n] = 1.0  # the e-nodes of an e-class sum to at least its variable
    low = [0.0] * classes
    for root in graph.roots:
        rows.append({y + root: 1.0})
        low.append(1.0)
    for n, node in enumerate(nodes):
        for need in node.needs:
            rows.append({y + need: 1.0, n: -1.0})
            low.append(0.0)
            if part_of[need] == part_of[node.out]:
                size = float(len(parts[part_of[need]]) + 1)
                rows.append({t + node.out: 1.0, t + need: -1.0, n: -size} if need != node.out else {n: -1.0})
                low.append(1.0 - size if need != node.out else 0.0)
    for c in sorted(problem.single):
        rows.append({n: -1.0 for n, node in enumerate(nodes) if node.choice is not None and node.choice[0] == c})
        low.append(-1.0)
    where = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    model.add_rows(np.array(low), np.full(len(rows), math.inf), where,
                   np.array([column for row in rows for column in row]),
                   np.array([value for row in rows for value in row.values()]))
    left = max(0.1, seconds - (time.monotonic() - began))
    solved = model.solve_integer(np.arange(len(nodes) + classes), left, 1e-4, None)
    bound = max(0.0, solved.bound / unit) if math.isfinite(solved.bound) else 0.0
    if solved.values is None:
        return None, bound
    return _chosen(nodes[n] for n in np.flatnonzero(solved.values[: len(nodes)] > 0.5)), bound


def egglog_extraction(problem: Problem, scale: float) -> Chosen:
    """The choices in the tree that egglog's extractor takes for the roots."""
    import egglog.bindings as bindings

    graph = ShardGraph(problem, apart=False)
    root = len(graph.number)
    nodes = [*graph.nodes, Node(root, tuple(graph.roots), 0.0, None)]
    cost = [round(node.cost / scale * SCALE) for node in nodes]
    arities = sorted({len(node.needs) for node in nodes})
    text = ["(sort T)(ruleset load)(constructor V (i64) T :unextractable)"]
    for k in arities:
        needs = [f"a{i}" for i in range(k)]
        text.append(
            f"(constructor N{k} (i64 {'T ' * k}) T)(relation in{k} (i64 i64 {'i64 ' * k}))"
            f"(rule ((in{k} c n {' '.join(needs)})) "
            f"((union (V c) (N{k} n {' '.join(f'(V {a})' for a in needs)}))) :ruleset load)")
    with tempfile.TemporaryDirectory() as directory:
        egraph = bindings.EGraph(fact_directory=directory)
        for k in arities:
            with open(os.path.join(directory, f"{k}.tsv"), "w") as file:
                file.writelines("\t".join(map(str, (node.out, n, *node.needs))) + "\n"
                                for n, node in enumerate(nodes) if len(node.needs) == k)
            text.append(f'(input in{k} "{k}.tsv")')
        egraph.run_program(*egraph.parse_program("\n".join([*text, "(run load 1)"])))
    model = bindings.CostModel(
        lambda _, own, children: sum(children, start=own),
        lambda _, arguments: cost[egraph.value_to_i64(arguments[0])],
        lambda _, __, children: sum(children),
        lambda _, __: 0,
    )
    extractor = bindings.Extractor(["T"], egraph, model)
    terms = bindings.TermDag()
    sort, value = egraph.eval_expr(bindings.Call(bindings.RustSpan(__name__, 0, 0), "V", [
        bindings.Lit(bindings.RustSpan(__name__, 0, 0), bindings.Int(root))]))
    _, best = extractor.extract_best(egraph, terms, value, sort)
    taken, work, seen = [], [best], {best}
    while work:
        term = terms.get(work.pop())
        number, *children = term.args
        taken.append(nodes[terms.get(number).value.value])
        new = [child for child in children if child not in seen]
        seen.update(new)
        work += new
    return _chosen(taken)


def _chosen(nodes: Iterator[Node] | list[Node]) -> Chosen:
    found: Chosen = {}
    for node in nodes:
        if node.choice is not None:
            c, s = node.choice
            found[c] = (*found.get(c, ()), s)
    return found
