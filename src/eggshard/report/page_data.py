"""What a report's page shows of a plan, as JSON values: tables of rows of numbers and of texts, every text once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any

from eggshard.layers.layering import find_layers
from eggshard.plan.control_steps import Branch, Loop
from eggshard.plan.naming import output_names
from eggshard.plan.reasons import packed
from eggshard.plan.schedule import COMPUTE
from eggshard.plan.steps import Action, Local, Step, StepPlan
from eggshard.report.difference import difference, figures
from eggshard.report.explanation import Context, decisions_of, why
from eggshard.report.tables import headline, model_name, over, what

if TYPE_CHECKING:
    from eggshard.lower.comparison import Comparison, CompiledFigures
    from eggshard.plan.plan import Plan

#: From so many steps on a run of one layer's steps is a group of its own, and one of fewer steps joins its neighbour.
LEAST_RUN = 6
#: Of the bodies of loops and branches so many steps are listed.
BODY_STEPS = 300
#: Of so many steps rows that two plans share are left out of their comparison.
MANY_ROWS = 1500


class PageData:
    """Collects the values for one plan."""

    def __init__(self, plan: Plan, comparison: Comparison | None = None):
        self.plan, self.comparison, self.reasons, self._context = plan, comparison, plan.reasons, Context(plan)
        self._texts: dict[str, int] = {}

    def text(self, what: str) -> int:
        """The number of a text."""
        return self._texts.setdefault(what, len(self._texts))

    def values(self) -> dict[str, Any]:
        """Everything; ``texts`` last, when all are known."""
        plan = self.plan
        data = {
            "name": plan.program.name, "headline": headline(plan), "mesh": list(plan.mesh.axes.items()),
            "search": self._search(), "totals": self._totals(plan), "tensors": self._tensors,
            "values": self._values(), "steps": self._steps(), "groups": self._groups(),
            "inputs": list(plan.device_program.inputs), "outputs": list(plan.device_program.outputs),
            "output_names": [self.text(name) for name in output_names(plan)],
            "lanes": list(plan.schedule.busy.items()), "makespan": plan.schedule.makespan,
            "reasons": packed(self.reasons), "compared": self._compared(), "xla": self._xla(),
        }
        data["texts"] = list(self._texts)
        return data

    def _search(self) -> dict[str, Any]:
        plan, search = self.plan, self.plan.search
        return {
            "method": search.method, "certificate": plan.certificate, "bound": plan.bound, "gap": plan.gap,
            "fallback": search.fallback, "classes": search.classes, "nodes": search.nodes, "exact": search.exact,
            "seconds": {k: round(v, 4) for k, v in search.seconds.items()}, "notes": list(search.notes),
            "rules": {k: n for k, n in search.rules.items() if n}, "model": model_name(plan)[:300],
        }

    @staticmethod
    def _totals(plan: Plan) -> dict[str, Any]:
        cost = plan.cost
        return {
            "seconds": cost.total, "communication": cost.communication, "compute": cost.compute, "hidden": cost.hidden,
            "bytes": plan.wire_bytes, "serial": plan.serial_bytes, "flops": plan.flops, "steps": len(plan.steps),
            "collectives": plan.collectives, "peak": plan.peak_bytes,
        }

    @cached_property
    def _kinds(self) -> dict[tuple[object, object], int]:
        held = self.plan.device_program.held
        return {kind: i for i, kind in enumerate(dict.fromkeys((h.type, h.placement) for h in held if h is not None))}

    @property
    def _tensors(self) -> list[list[Any]]:
        """The distinct placed tensors: shape, element type, per dimension (axes, tile, low, high, wrapped), addends."""
        return [
            [list(t.shape), t.dtype, [[list(d.axes), d.tile, d.low, d.high, d.wrapped] for d in p.dims],  # type: ignore[attr-defined]
             list(p.partial), p.monoid, self.text(str(p))]  # type: ignore[attr-defined]
            for t, p in self._kinds
        ]

    def _values(self) -> list[list[int]]:
        """Per value of the plan: its placed tensor (or -1), local type, class, name, and what of the program it is."""
        program = self.plan.device_program
        held = program.held or (None,) * len(program.types)
        return [
            [-1 if h is None else self._kinds[h.type, h.placement], self.text(str(t)), -1 if h is None else h.cls,
             self.text(name), -1 if h is None else self.text(self._context.origins.of(h.value))]
            for t, h, name in zip(program.types, held, self._context.names, strict=True)
        ]

    def _steps(self) -> dict[str, Any]:
        """Columns by name, a row for every step."""
        plan, schedule = self.plan, self.plan.schedule
        number = {id(d): i for i, d in enumerate(self.reasons.decisions)}
        received = plan.received.max(axis=1) if len(plan.steps) else []
        return {
            "kind": [_kind(s) for s in plan.steps],
            "op": [self.text(s.action.name if isinstance(s.action, Local) else s.action.kind) for s in plan.steps],
            "what": [self.text(what(s.action)) for s in plan.steps],
            "over": [self.text(over(s.action)) for s in plan.steps],
            "operands": [list(s.operands) for s in plan.steps],
            "results": [list(s.results) for s in plan.steps],
            "seconds": list(plan.prices),
            "bytes": [round(float(n)) for n in received],
            "start": list(schedule.starts), "end": list(schedule.ends),
            "hidden": [h if h > 1e-9 * schedule.makespan else 0.0 for h in schedule.hidden],  # sums are rounded
            "lanes": [[*([COMPUTE] if w.computing or not w.channels else []), *w.channels] for w in schedule.work],
            "why": [[self.text(line) for line in why(plan, i, self._context)] for i in range(len(plan.steps))],
            "rules": [[self.text(w) for w in s.why] for s in plan.steps],
            "decisions": [
                [number[id(d)] for d in decisions_of(plan, i, self._context)] for i in range(len(plan.steps))],
            "bodies": {i: self._bodies(s.action) for i, s in enumerate(plan.steps)
                       if isinstance(s.action, (Loop, Branch))},
        }

    def _bodies(self, action: Action) -> list[Any]:
        """The device programs inside a loop or branch: name, and rows of what, over, and seconds."""
        if isinstance(action, Loop):
            parts = [("condition", action.condition), (f"body, {action.trips} times", action.body)]
        else:
            assert isinstance(action, Branch)
            parts = [(f"branch {i}", b) for i, b in enumerate(action.branches)]
        return [[name, len(p.steps), [self._row(p, s) for s in p.steps[:BODY_STEPS]]] for name, p in parts]

    def _row(self, program: StepPlan, step: Step) -> list[Any]:
        price = self.plan._price(step.action, *(program.types[v] for v in step.operands))
        results = ", ".join(str(program.types[v]) for v in step.results)
        return [self.text(what(step.action)), self.text(over(step.action)), self.text(results), price]

    def _groups(self) -> list[list[Any]]:
        """Runs of steps that belong together: name, first step, how many. One group where nothing repeats."""
        labels = self._layers()
        runs: list[list[Any]] = []
        for label, steps in groupby(labels):
            count = len(list(steps))
            if runs and (runs[-1][0] == label or count < LEAST_RUN):
                runs[-1][2] += count
            else:
                runs.append([label, sum(run[2] for run in runs), count])
        if len(runs) > 1 and runs[0][2] < LEAST_RUN:
            (_, _, first), second = runs.pop(0), runs[0]
            second[1], second[2] = 0, second[2] + first
        seen: dict[int, int] = {}
        for run in runs:
            seen[run[0]] = part = seen.get(run[0], 0) + 1
            where = "before the" if run is runs[0] else "after the" if run is runs[-1] else "between"
            name = f"layer {run[0]}" if run[0] >= 0 else f"{where} layers" if len(runs) > 1 else "all steps"
            run[0] = name + (f", part {part}" if part > 1 else "")
        return runs

    def _layers(self) -> Sequence[int]:
        """Per step the layer of the program that its first result is of, counted as the program has them; -1: none."""
        plan, held = self.plan, self.plan.device_program.held
        region = plan.program.region
        layering = find_layers(region) if len(plan.steps) > 40 and held else None
        if layering is None:
            return [-1] * len(plan.steps)
        order = {layer: n for n, layer in enumerate(dict.fromkeys(n for n in layering.layer if n >= 0))}
        maker = {v: layering.layer[i] for i, op in enumerate(region.ops) for v in op.results}
        labels: list[int] = []
        for step in plan.steps:
            tensors = [held[v] for v in step.results]
            layers = [maker[h.value] for h in tensors if h is not None and h.value in maker]
            labels.append(order.get(layers[0], -1) if layers else labels[-1] if labels else -1)
        return labels

    def _compared(self) -> dict[str, Any] | None:
        """The baseline beside the plan; none where the plan is its own baseline."""
        plan = self.plan
        if plan.baseline is plan:
            return None
        found = difference(plan, plan.baseline, ("plan", "baseline"))
        rows = found.rows
        if len(rows) > MANY_ROWS:
            rows = tuple(row for row in rows if row[0] is None or row[1] is None)[:MANY_ROWS]
        return {
            "totals": self._totals(plan.baseline), "same": found.same,
            "figures": [[name, a, b, shown(a), shown(b)] for name, a, b, shown in figures(plan, plan.baseline)],
            "rows": [[side and [side.step, self.text(side.what), self.text(side.placements), side.bytes, side.seconds]
                      for side in row] for row in rows],
            "left_out": len(found.rows) - len(rows),
        }

    def _xla(self) -> dict[str, Any] | None:
        if self.comparison is None:
            return None

        def shown(compiled: CompiledFigures) -> dict[str, Any]:
            return {**asdict(compiled), "collectives": dict(compiled.collectives),
                    "modelled_seconds": compiled.modelled_seconds}

        return {"plan": shown(self.comparison.plan), "xla": shown(self.comparison.xla)}


def _kind(step: Step) -> str:
    """collective, control (loops and branches), view (free renaming), move (within the device) or compute."""
    if isinstance(step.action, (Loop, Branch)):
        return "control"
    if step.action.messages:
        return "collective"
    if not isinstance(step.action, Local):
        return "move"
    return "view" if "view" in step.why else "compute"
