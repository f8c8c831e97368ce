"""Halo expansion in the selection problem: choices that compute on windows, and per value a class of its windows.

A value's consumers share its halo exchange, and a narrower window is cut from a wider one at no cost. The windows of a
value are therefore a class of their own: its choices expand a shard of the value by an exchange (or take one that was
computed wide), and its conversions cut narrower windows out of wider ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from eggshard.egraph.graph import EGraph, ENode
from eggshard.placement.window_transfer import WindowTransfer
from eggshard.planner.encoding.bounding import axes_of
from eggshard.planner.encoding.encode import Computed, Encoding, Widened, Widening
from eggshard.planner.encoding.joint import JointExchanges
from eggshard.planner.encoding.schedules import schedules
from eggshard.planner.encoding.views import Views
from eggshard.planner.encoding.windows import Held, WindowDemand
from eggshard.planner.op_plans import OpPlans
from eggshard.program.placement import Dim, Placement
from eggshard.reshard.window_routes import WindowRouter, contains, home
from eggshard.selection.problem import Choice


class Widener:
    """Adds the windows of one graph to its problem.

    limit: widths per value and grid; 0 leaves windows out. inputs, outputs: where they lie, (class, placement).
    """

    def __init__(self, plans: OpPlans, limit: int, inputs: Sequence[tuple[int, Placement]],
                 outputs: Sequence[tuple[int, Placement]]):
        self.plans, self.mesh, self.limit = plans, plans.mesh, limit
        self.inputs, self.outputs = inputs, outputs

    def demand(self, graph: EGraph, views: Views) -> WindowDemand:
        """The windows at which values may be needed, not followed back yet."""

        def transfer(c: int, node: ENode) -> WindowTransfer | None:
            if node.op in ("input", "result"):
                return None
            types = tuple(graph.type_of(a) for a in node.children)
            return self.plans.window_transfer(node, types, graph.classes[c].types)

        return WindowDemand(graph, views, self.mesh, transfer, self.inputs, self.outputs, self.limit)

    def __call__(self, graph: EGraph, out: Encoding, choices: list[list[Choice]]) -> Widening:
        """Extends ``choices`` and the encoding's classes."""
        router = self.plans.context.router
        # Nothing has windows in manual computations, whose routers know of none.
        wanted = self.limit and any(p.sharded_axes for _, p in (*self.inputs, *self.outputs))
        if not wanted or not isinstance(router, WindowRouter):
            return Widening()
        self.router = router
        demand = self.demand(graph, out.views)
        self._regroup(graph, out, choices, demand)
        demand.close()
        if not demand.order:  # nothing looks at neighbours
            return Widening()
        held: list[tuple[int, int, Held]] = []
        for group in demand.needed:
            for part in demand.held(group):
                windows = list(dict.fromkeys([*part.windows, *part.bounding_windows]))
                for number, window in enumerate(windows):
                    out.windows.setdefault(group, {})[window] = len(choices), number
                held.append((group, len(choices), part))
                out.add(windows)
                choices.append([])
        self._compute(graph, out, choices, demand)
        for group, number, part in held:
            self._hold(out, choices, demand, group, number, part)
        joint = JointExchanges(out, choices, demand, self.mesh, self.router, held)
        joint.offer()
        tables = {number: self._cuts(out, group, number) for group, number, _ in held}
        seeds = list(schedules(demand, out, choices, self.mesh))
        seeds += [with_joint for seed in seeds if (with_joint := joint.joined(seed)) != seed]
        return Widening(tables, seeds)

    def _compute(self, graph: EGraph, out: Encoding, choices: list[list[Choice]], demand: WindowDemand) -> None:
        for c, (n, node, _) in demand.nodes.items():
            types, results = tuple(graph.type_of(child) for child in node.children), graph.classes[c].types
            placements = (*demand.homes(c), *demand.made_of(c), *demand.left_on(c))
            computed = [s for p in placements for s in demand.strategies(c, p)]
            for s in (*computed, *demand.reductions(c)):
                needs = tuple(dict.fromkeys(
                    out.need(child, p) for child, p in zip(node.children, s.operands, strict=True)
                ))
                group, number = out.shard(c, s.results[0])
                price = self.plans.price(node, types, results, s)
                choices[group].append(Choice(number, price, needs, Computed(c, n, s)))

    def _regroup(self, graph: EGraph, out: Encoding, choices: list[list[Choice]], demand: WindowDemand) -> None:
        """Reshapes by exchanges, between placements at which dimensions lie as on some input or output."""
        for c, (n, node, _) in demand.nodes.items():
            if len(node.children) != 1:
                continue
            (child,), types, results = node.children, (graph.type_of(node.children[0]),), graph.classes[c].types

            def allowed(source: Placement, target: Placement, c: int = c, child: int = child) -> bool:
                return all(out.views.represents(*at) and demand.dims.allows(*at)
                           for at in ((child, source), (c, target)))

            for s in self.plans.regroupings(node, types, results, allowed):
                price = self.plans.price(node, types, results, s)
                group, number = out.shard(c, s.results[0])
                choices[group].append(Choice(number, price, (out.shard(child, s.operands[0]),), Computed(c, n, s)))

    def _hold(
        self, out: Encoding, choices: list[list[Choice]], demand: WindowDemand, group: int, number: int, part: Held
    ) -> None:
        """The choices of a class of windows: a group's shard at tiles, computed wide or held whole, is widened to a
        bounding window, or a bounding window is cut out of a wider one of the group. Every window is inside a
        bounding window."""
        type_ = out.views.core_type(group)
        made = frozenset(demand.made[group])
        others: dict[object, list[tuple[Placement, tuple[int, int]]]] = {}
        for p, shard in out.windows[group].items():
            if shard[0] != number and p in made:
                others.setdefault(axes_of(p), []).append((p, shard))
        given = [out.views.to_core(c, p) for c, p in self.inputs if p.windowed and out.views.group[c] == group]
        computed = {out.placements[group][choice.out] for choice in choices[group]}
        for target in part.bounding_windows:
            standard = home(self.mesh, type_.shape, target)
            whole = Placement(tuple(
                Dim((), n) if d != s else s
                for n, d, s in zip(type_.shape, target.dims, standard.dims, strict=True)
            ))
            inner = target._replace(dims=tuple([d._replace(wrapped=None) for d in target.dims]))
            own = dict.fromkeys(
                p for p in (target, demand.narrowest(group, target), inner, standard)
                if p in computed or p == standard in demand.moved.get(group, ())
            )
            own.update(dict.fromkeys(p for p in given if contains(self.mesh, type_.shape, p, target)))
            sources = {p: out.numbered(group, p) for p in (*own, whole)}
            sources.update((p, shard) for p, shard in others.get(axes_of(target), ())
                           if contains(self.mesh, type_.shape, p, target))
            for source, need in sources.items():
                cost = 0.0 if source == target else self.router.widened(type_, source, target)
                if cost < math.inf:
                    choices[number].append(Choice(out.index[number][target], cost, (need,), Widened(group, source)))

    def _cuts(self, out: Encoding, group: int, number: int) -> np.ndarray:
        """The conversions of a class of windows: narrower ones are cut out of wider ones."""
        type_, windows = out.views.core_type(group), out.placements[number]
        table = np.full((len(windows),) * 2, math.inf)
        for i, wide in enumerate(windows):
            for j, narrow in enumerate(windows):
                assert isinstance(wide, Placement) and isinstance(narrow, Placement)
                if i == j:
                    table[i, j] = 0.0
                elif contains(self.mesh, type_.shape, wide, narrow):
                    table[i, j] = self.router.widened(type_, wide, narrow)
        return table
