"""The data of a report's page as JSON values: tables of rows of numbers and of texts, every text stored once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

from eggshard.costmodel.schedule import COMPUTE
from eggshard.memory.prediction import memory_of
from eggshard.plan.naming import output_names
from eggshard.plan.reasons import packed
from eggshard.planner.layers.parts import find_parts
from eggshard.report.difference import difference, figures
from eggshard.report.explanation import decisions_of, why
from eggshard.report.findings import findings
from eggshard.report.page_rows import Row, Rows
from eggshard.report.scopes import Run, Scope, fused, merged, runs_of, scope_of
from eggshard.report.tables import headline, model_name, over, what
from eggshard.report.words import sentence
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.steps import Local, Step

if TYPE_CHECKING:
    from eggshard.engines.jax.comparison import Comparison, CompiledFigures
    from eggshard.plan.record import PlanRecord

#: Number of rows above which a comparison of two plans leaves out shared ones and is cut to this length.
MANY_ROWS = 1500


class PageData:
    """Collects the values for one plan."""

    def __init__(self, plan: PlanRecord, comparison: Comparison | None = None):
        self.plan, self.comparison, self.reasons = plan, comparison, plan.reasons
        self._rows = Rows(plan)
        self._texts: dict[str, int] = {}

    def text(self, what: str) -> int:
        """The number of a text."""
        return self._texts.setdefault(what, len(self._texts))

    def values(self) -> dict[str, Any]:
        """Everything; ``texts`` last, when all are known."""
        plan = self.plan
        data = {
            "name": plan.program.name, "headline": headline(plan), "mesh": list(plan.mesh.axes.items()),
            "search": self._search(), "totals": {**self._totals(plan), "peak": memory_of(plan).peak},
            "tensors": self._tensors,
            "values": self._values(), "steps": self._steps(), "groups": self._groups(),
            "inputs": list(plan.device_program.inputs), "outputs": list(plan.device_program.outputs),
            "output_names": [self.text(name) for name in output_names(plan)],
            "lanes": list(plan.schedule.busy.items()), "makespan": plan.schedule.makespan,
            "reasons": packed(self.reasons), "words": self._words(),
            "findings": self._findings(), "compared": self._compared(), "xla": self._xla(),
        }
        data["texts"] = list(self._texts)
        return data

    def _search(self) -> dict[str, Any]:
        plan, search = self.plan, self.plan.search
        return {
            "method": search.method, "certificate": plan.certificate, "bound": plan.bound, "gap": plan.gap,
            "searchGap": plan.search_gap,
            "fallback": search.fallback, "classes": search.classes, "nodes": search.nodes, "exact": search.exact,
            "seconds": {k: round(v, 4) for k, v in search.seconds.items()}, "notes": list(search.notes),
            "rules": {k: n for k, n in search.rules.items() if n}, "model": model_name(plan)[:300],
            "unit": plan.unit._asdict(),
        }

    def _findings(self) -> list[list[Any]]:
        """The title, text and rows of each finding."""
        row = {r.number: i for i, r in enumerate(self._rows.rows) if r.parent < 0}
        return [[f.title, f.text, [row[i] for i in f.steps]] for f in findings(self.plan, self.comparison)]

    def _words(self) -> dict[str, str]:
        """What each rule did that is behind the plan or an alternative, by its name."""
        behind = {rule for d in self.reasons.decisions for rule, _ in d.rules}
        behind |= {rule for d in self.reasons.decisions for a in d.alternatives for rule in a.rules}
        return {rule: sentence(rule) for rule in sorted(behind.union(self.plan.search.rules))}

    @staticmethod
    def _totals(plan: PlanRecord) -> dict[str, Any]:
        cost = plan.cost
        return {
            "seconds": cost.total, "communication": cost.communication, "compute": cost.compute, "hidden": cost.hidden,
            "bytes": plan.wire_bytes, "serial": plan.serial_bytes, "flops": plan.flops, "steps": len(plan.steps),
            "collectives": plan.collectives,
        }

    @cached_property
    def _kinds(self) -> dict[tuple[object, object], int]:
        held = (h for room in self._rows.rooms for h in room.place.program.held if h is not None)
        return {kind: i for i, kind in enumerate(dict.fromkeys((h.type, h.placement) for h in held))}

    @property
    def _tensors(self) -> list[list[Any]]:
        """The distinct placed tensors: shape, element type, dims (axes, tile, low, high, wrapped), partial axes."""
        return [
            [list(t.shape), t.dtype, [[list(d.axes), d.tile, d.low, d.high, d.wrapped] for d in p.dims],  # type: ignore[attr-defined]
             list(p.partial), p.monoid, self.text(str(p))]  # type: ignore[attr-defined]
            for t, p in self._kinds
        ]

    def _values(self) -> list[list[int]]:
        """Per value of the plan, and of the programs in it: its placed tensor (or -1), local type, class, name, what of
        the program it is (or -1), and the problem of its class."""
        found = []
        for room in self._rows.rooms:
            program, problem = room.place.program, room.place.problem
            maker = {v: step for step in program.steps for v in step.results}
            held = program.held or (None,) * len(program.types)
            for v, (t, h, name) in enumerate(zip(program.types, held, room.context.names, strict=True)):
                kind, cls, told = (-1, -1, -1) if h is None else (
                    self._kinds[h.type, h.placement], h.cls, self.text(room.context.told(h.value, maker.get(v))))
                found.append([kind, self.text(str(t)), cls, self.text(name), told, problem])
        return found

    def _steps(self) -> dict[str, Any]:
        """Columns by name, a row for every step; those of loops and branches after the step that they are in."""
        columns = {name: [of(row) for row in self._rows.rows] for name, of in self._columns().items()}
        inside = {row: [list(inner) for inner in inside] for row, inside in self._rows.inside.items()}
        chains = {id(room): fused(room.place.program.steps) for room in self._rows.rooms}
        of = [chains[id(row.room)][row.number] for row in self._rows.rows]
        return {**columns, "alive": self._rows.alive, "inside": inside, "fused": of}

    def _columns(self) -> dict[str, Callable[[Row], Any]]:
        """What each column says of a step."""
        plan, text = self.plan, self.text
        number = {id(d): i for i, d in enumerate(self.reasons.decisions)}
        least = 1e-9 * plan.schedule.makespan  # sums are rounded

        def op(row: Row) -> int:
            action = row.step.action
            return text(action.name if isinstance(action, Local) else action.kind)

        def lanes(row: Row) -> list[str]:
            work = row.room.schedule.work[row.number]
            return [*([COMPUTE] if work.computing or not work.channels else []), *work.channels]

        return {
            "kind": lambda row: _kind(row.step),
            "op": op,
            "what": lambda row: text(what(row.step.action)),
            "over": lambda row: text(over(row.step.action)),
            "operands": lambda row: row.values[0],
            "results": lambda row: row.values[1],
            "address": lambda row: row.address,
            "parent": lambda row: row.parent,
            "times": lambda row: row.room.place.times,
            "seconds": lambda row: row.seconds,
            "bytes": lambda row: row.received,
            "start": lambda row: row.start,
            "end": lambda row: row.end,
            "hidden": lambda row: row.hidden if row.hidden > least else 0.0,
            "lanes": lanes,
            "why": lambda row: [text(line) for line in why(plan, row.number, row.room.context)],
            "rules": lambda row: [text(rule) for rule in map(sentence, row.step.why)],
            "decisions": lambda row: [number[id(d)] for d in decisions_of(plan, row.number, row.room.context)],
        }

    def _groups(self) -> list[list[Any]]:
        """Runs of steps that belong together: name, first step, how many, and the runs within.

        They are those of named scopes, else of equal layers; one of all steps where there are neither.
        """
        scopes = self._scopes()
        if len(set(scopes)) > 1:
            return [_nested(run) for run in runs_of(scopes)]
        runs = merged(self._labels())
        seen: dict[Any, int] = {}
        groups: list[list[Any]] = []
        for label, first, count in runs:
            seen[label] = part = seen.get(label, 0) + 1
            where = "before the" if not groups else "after the" if first + count == len(self._rows.rows) else "between"
            name = f"layer {label}" if label != -1 else f"{where} layers" if len(runs) > 1 else "all steps"
            groups.append([name + (f", part {part}" if part > 1 else ""), first, count, []])
        return groups

    def _scopes(self) -> list[Scope]:
        """Per row the scopes of the op whose tensor its step makes; of what is no op's, those of who takes it first, or
        of the step before."""
        plan, held = self.plan, self.plan.device_program.held
        of = {v: scope for op in plan.program.region.ops if (scope := scope_of(op.location)) is not None
              for v in op.results}
        found: list[Scope | None] = []
        taken: dict[int, Scope] = {}  # by who takes a value first
        for step in reversed(plan.steps) if held else ():
            known = [of[h.value] for v in step.results if (h := held[v]) is not None and h.value in of]
            scope = next(iter([*known, *(taken[v] for v in step.results if v in taken)]), None)
            found.insert(0, scope)
            if scope is not None:
                taken.update(dict.fromkeys(step.operands, scope))
        filled: list[Scope] = []
        for scope in found:
            filled.append(scope if scope is not None else filled[-1] if filled else ())
        return [filled[row.root] for row in self._rows.rows] if filled else [()] * len(self._rows.rows)

    def _labels(self) -> list[int]:
        """Per row the layer that it belongs to."""
        layers = self._layers()
        return [layers[row.root] for row in self._rows.rows]

    def _layers(self) -> Sequence[int]:
        """Per step the layer of the program that its first result is of, counted as the program has them; -1: none."""
        plan, held = self.plan, self.plan.device_program.held
        region = plan.program.region
        parts = find_parts(plan.program) if len(plan.steps) > 40 and held else None
        if parts is None:
            return [-1] * len(plan.steps)
        order = {part: n for n, part in enumerate(dict.fromkeys(n for n in parts.part if n >= 0))}
        maker = {v: parts.part[i] for i, op in enumerate(region.ops) for v in op.results}
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


def _nested(run: Run) -> list[Any]:
    return [run.name, run.start, run.size, [_nested(inner) for inner in run.within]]


def _kind(step: Step) -> str:
    """collective, control (loops and branches), view (free renaming), move (within the device) or compute."""
    if isinstance(step.action, (Loop, Branch)):
        return "control"
    if step.action.messages:
        return "collective"
    if not isinstance(step.action, Local):
        return "move"
    return "view" if "view" in step.why else "compute"
