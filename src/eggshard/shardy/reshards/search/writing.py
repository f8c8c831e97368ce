"""Writer of a block's plan into its module: closed shardings on every value, and reshards where they are needed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from jaxlib.mlir import ir

from eggshard.program.placement import Placement
from eggshard.program.sharding import whole_mesh
from eggshard.shardy.attributes import axis_list_text, per_value_text
from eggshard.shardy.module import BODIES, SHARDING, create
from eggshard.shardy.reshards.search.blocks import HINTS, BlockPlan
from eggshard.shardy.reshards.search.offers import BARRIER, IDENTITIES, Held
from eggshard.steps.steps import Action, AllReduce, KeepFirst, ReduceScatter

Steps = Sequence[tuple[Action, Placement]]


def write(plan: BlockPlan, outside: Mapping[Held, Any] | None = None) -> None:
    """Change the plan's block, and the blocks inside it. outside: what holds the outer values that it uses."""
    _Writer(plan, outside or {}).write()


class _Writer:
    def __init__(self, plan: BlockPlan, outside: Mapping[Held, Any]):
        self.plan, self.context = plan, plan.context
        #: The module's value that holds a value at a placement.
        self.held: dict[Held, Any] = {(v, p): v for v, p in plan.inputs} | dict(outside)
        #: How to come to what is converted: from a placement that is held earlier, by steps.
        self.ways: dict[Held, tuple[Placement, Steps]] = {}
        #: Per value computed at partial values the axes along which its sharding says that it is unreduced.
        self.unreduced: dict[Held, tuple[str, ...]] = {}
        #: Per value the placements at which it must be had on the way.
        self.stops: set[Held] = set()
        for (value, placement), targets in plan.converted.items():
            self._route(value, placement, targets)

    def _route(self, value: Any, placement: Placement, targets: Sequence[Placement]) -> None:
        """Find the ways from a placement at which a value is computed; they share what they can."""
        reduced = []
        self.stops.update((value, target) for target in targets)
        for start, steps in self.context.conversions.tree(self.context.type(value), placement, targets):
            self.stops.add((value, start))
            for number, (_, after) in enumerate(steps):
                self.ways.setdefault((value, after), (start, steps[: number + 1]))
            if start == placement:
                reduced.append(set(_combined(steps[0][0])))
        gone = set.intersection(*reduced) if reduced and (value, placement) not in self.plan.taken else set[str]()
        self.unreduced[value, placement] = tuple(a for a in placement.partial if a not in gone)

    def write(self) -> None:
        *ops, terminator = (op.operation for op in self.plan.block.operations)
        barriers: dict[int, list[Held]] = {}
        for held, (number, version) in self.plan.source.items():
            if version < 0:
                barriers.setdefault(number, []).append(held)
        gone = []
        for number, op in enumerate(ops):
            if op.name == BARRIER:
                self._barrier(op, barriers.get(number, []))
            elif op.name not in (*IDENTITIES, *HINTS) and self.plan.made[number]:
                after = ops[number + 1] if number + 1 < len(ops) else terminator
                self._op(number, op, after)
                continue
            gone.append(op)
        for place, placement in enumerate(self.plan.ends):
            terminator.operands[place] = self._get(terminator.operands[place], placement, terminator)
        for op in reversed(gone):
            op.erase()

    def _op(self, number: int, op: Any, after: Any) -> None:
        """An op by the offers chosen for it, in copies behind it where there are several."""
        values = list(op.operands)
        for version, offer in enumerate(self.plan.made[number]):
            own = op if version == 0 else op.clone(ir.InsertionPoint(after))
            for place, (value, placement) in enumerate(zip(values, offer.operands, strict=True)):
                own.operands[place] = self._get(value, placement, own)
            outside = {(v, p): self._get(v, p, own) for v, p in offer.captured}
            for inner in offer.inner:
                write(inner, {held: outside[held] for held in inner.inputs if held in outside})
            for mine, result, placement in zip(own.results, op.results, offer.results, strict=True):
                if self.plan.source.get((result, placement)) == (number, version):
                    self.held[result, placement] = mine
            passed = {axis for placement in offer.operands for axis in placement.partial}
            self._state(own, list(zip(op.results, offer.results, strict=True)), passed)

    def _barrier(self, op: Any, held: Sequence[Held]) -> None:
        """A barrier of what is needed of it, at each placement."""
        if not held:
            return
        operand = dict(zip(op.results, op.operands, strict=True))
        operands = [self._get(operand[v], p, op) for v, p in held]
        made = create(BARRIER, operands, [v.type for v in operands], {}, op)
        self.held.update(zip(held, made.results, strict=True))
        self._state(made, held, {axis for _, placement in held for axis in placement.partial})

    def _get(self, value: Any, placement: Placement, before: Any) -> Any:
        """The module's value that holds a value at a placement, converted in front of an op where it is not there."""
        value = self.plan.alias.get(value, value)
        if (value, placement) not in self.held:
            start, steps = self.ways[value, placement]
            self._convert(value, self._get(value, start, before), start, steps, before)
        return self.held[value, placement]

    def _convert(self, value: Any, own: Any, at: Placement, steps: Steps, before: Any) -> None:
        """Write a way down. Steps that only move shards are one reshard up to where another way begins."""
        for number, (action, after) in enumerate(steps):
            if isinstance(action, KeepFirst):
                stated = {"axes": self._axes(action.over), "out_sharding": str(self._sharding(after))}
                own = _made("sdy.replicated_to_unreduced", own, stated, before)
                at = after
            elif axes := _combined(action):
                left = tuple(a for a in at.partial if a not in axes)
                at = Placement(at.dims, left, at.monoid if left else "")
                shown = self.context.sharding(at, left if at.monoid == "add" else ())
                stated = {"reduction_axes": self._axes(axes), "out_sharding": str(shown)}
                own = _made("sdy.all_reduce", own, stated, before)
            scattered = isinstance(action, ReduceScatter)  # the slice next to its all-reduce is part of it
            if not scattered and (value, after) not in self.stops and _only_moves(steps[number + 1 :][:1]):
                continue
            if not _alike(at, after):
                own = _made("sdy.reshard", own, {"sharding": str(self._sharding(after))}, before)
            at = after
            self.held[value, after] = own

    def _sharding(self, placement: Placement) -> Any:
        return self.context.sharding(placement, placement.partial)

    def _axes(self, axes: Iterable[str]) -> str:
        shown = self.context.sharding(Placement(()), axes).sharding.canonical(whole_mesh(self.context.mesh))
        return axis_list_text(shown.unreduced)

    def _state(self, op: Any, placed: Sequence[Held], passed: Collection[str]) -> None:
        """State the shardings of an op's results. passed: the axes along which its operands are partial already."""
        if op.name in BODIES or not any(isinstance(r.type, ir.RankedTensorType) for r in op.results):
            return
        shardings = [self.context.sharding(p, self._stated(v, p, passed)) for v, p in placed]
        op.attributes[SHARDING] = ir.Attribute.parse(per_value_text(shardings))

    def _stated(self, value: Any, placement: Placement, passed: Collection[str]) -> tuple[str, ...]:
        """What is unreduced: all partial values, but those that the op itself makes and that are combined at once."""
        if placement.monoid != "add":
            return ()
        kept = self.unreduced.get((value, placement), placement.partial)
        return tuple(a for a in placement.partial if a in kept or a in passed)


def _made(name: str, operand: Any, attributes: Mapping[str, str], before: Any) -> Any:
    """The result of a new op that leaves its operand what it is."""
    return create(name, [operand], [operand.type], attributes, before).results[0]


def _combined(action: Action) -> tuple[str, ...]:
    """The axes along which a step combines partial values."""
    return action.axes if isinstance(action, (AllReduce, ReduceScatter)) else ()


def _only_moves(steps: Steps) -> bool:
    """Whether there are steps, and none of them makes or combines partial values."""
    return bool(steps) and not any(isinstance(a, (KeepFirst, AllReduce, ReduceScatter)) for a, _ in steps)


def _alike(first: Placement, second: Placement) -> bool:
    """Whether two placements have one sharding: they may differ in tiles."""
    return [d.axes for d in first.dims] == [d.axes for d in second.dims] and first.partial == second.partial
