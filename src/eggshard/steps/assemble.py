"""Assembly of a device program, in order, from a selection of computed shards and reshardings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

import numpy as np

from eggshard.placement.transfer import Strategy
from eggshard.program import monoids
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement
from eggshard.program.types import TensorType, numpy_dtype
from eggshard.steps.held import Held, Origin
from eggshard.steps.steps import Action, Local, Mask, Step, StepPlan
from eggshard.steps.window_steps import BoxSelect


class Conversions(Protocol):
    """What assembly needs of the reshard planner."""

    def tree(
        self, type_: TensorType, source: Placement, targets: Iterable[Placement]
    ) -> list[tuple[Placement, tuple[tuple[Action, Placement], ...]]]:
        """Paths that together reach all targets, each from a placement that is available when its turn comes."""
        ...


class Assembler:
    """Appends steps, chosen for ``origins`` where nothing else is said.

    Equal steps on the same values are emitted once, as compilers keep them, except for effects.
    """

    def __init__(self, mesh: Mesh, conversions: Conversions | None = None, origins: tuple[Origin, ...] = ()):
        self.mesh, self.conversions = mesh, conversions
        self.steps: list[Step] = []
        self.types: list[TensorType] = []
        self.inputs: list[int] = []
        self.held: dict[int, Held] = {}
        self._origins = origins
        self._emitted: dict[tuple[Action, tuple[int, ...]], tuple[int, ...]] = {}

    def input(self, type_: TensorType) -> int:
        """A further input of this local type."""
        self.types.append(type_)
        self.inputs.append(len(self.types) - 1)
        return self.inputs[-1]

    @contextmanager
    def chosen_for(self, *origins: Origin) -> Iterator[None]:
        """What is emitted meanwhile was chosen for this."""
        before, self._origins = self._origins, origins
        yield
        self._origins = before

    def again(self, step: Step, operands: tuple[int, ...], action: Action | StepPlan | None = None) -> tuple[int, ...]:
        """Append another program's step on these operands, or what takes its action's place."""
        return self.emit(step.action if action is None else action, operands, step.why, step.label, step.origins)

    def emit(self, action: Action | StepPlan, operands: tuple[int, ...], why: tuple[str, ...] = (),
             label: str = "", origins: tuple[Origin, ...] = ()) -> tuple[int, ...]:
        """Append a step, or all steps of a device program, and return the results."""
        if isinstance(action, StepPlan):
            values = dict(zip(action.inputs, operands, strict=True))
            for step in action.steps:
                made = self.emit(
                    step.action, tuple(values[v] for v in step.operands), (*why, *step.why), step.label or label,
                    (*step.origins, *origins),
                )
                values.update(zip(step.results, made, strict=True))
            self._hold_inner(action, values)
            return tuple(values[v] for v in action.outputs)
        key = (action, operands)
        if key in self._emitted:
            return self._emitted[key]
        types = action.result(self.mesh, tuple(self.types[v] for v in operands))
        results = tuple(range(len(self.types), len(self.types) + len(types)))
        self.types.extend(types)
        self.steps.append(Step(action, operands, results, why, label, (*origins, *self._origins)))
        if not action.has_effects:
            self._emitted[key] = results
        return results

    def reshape(self, value: int, shape: tuple[int, ...], why: tuple[str, ...] = ("view",)) -> int:
        """The value in another shape; the value itself where it has that shape."""
        if self.types[value].shape == shape:
            return value
        action = Local("reshape", Attributes(shape=shape), (self.types[value].with_shape(shape),))
        return self.emit(action, (value,), why)[0]

    def scalar(self, value: object, dtype: str) -> int:
        """A constant."""
        literal = Literal(np.asarray(value).astype(numpy_dtype(dtype)))
        return self.emit(Local("constant", Attributes(value=literal), (TensorType((), dtype),)), ())[0]

    def hold_as(self, plan: StepPlan, values: Mapping[int, int], held: Iterable[int]) -> None:
        """Say of some values of another plan, here ``values``, what tensors they are."""
        for v in held if plan.held else ():
            tensor = plan.held[v]
            if tensor is not None:
                self.held.setdefault(values[v], tensor)

    def _hold_inner(self, program: StepPlan, values: Mapping[int, int]) -> None:
        """Say how the values within an emitted program lie, which are none of the outer one's tensors."""
        outer = {*program.inputs, *program.outputs}
        for v, tensor in enumerate(program.held):
            if tensor is not None and v not in outer and v in values:
                self.held.setdefault(values[v], tensor._replace(cls=-1, value=-1))

    def mask(self, operands: list[int], strategy: Strategy) -> list[int]:
        """Overwrite what a strategy's operands that are about to be reduced over hold outside their tensors."""
        out = list(operands)
        for i, dim, axes, size, monoid in strategy.masks:
            window, dtype = strategy.operands[i].dims[dim], self.types[out[i]].dtype
            if not window.windowed:
                (out[i],) = self.emit(Mask(dim, axes, size, monoid), (out[i],), ("mask uneven",))
                continue
            outside = self.scalar(monoids.identity(monoid, dtype), dtype)
            (out[i],) = self.emit(BoxSelect(((dim, window, 0, size),)), (out[i], outside), ("mask uneven",))
        return out

    def convert(
        self, value: int, type_: TensorType, source: Placement, targets: Iterable[Placement], label: str = "",
        of: tuple[int, int] = (-1, -1),
    ) -> dict[Placement, int]:
        """Values of the same tensor at all target placements, by shared prefixes where that is cheaper.

        of: its class and its number in the program, for `Held`.
        """
        available = {source: value}
        wanted = [t for t in dict.fromkeys(targets) if t != source]
        if not wanted:
            return available
        assert self.conversions is not None, "an assembler without a reshard planner converts nothing"
        for start, path in self.conversions.tree(type_, source, wanted):
            here, at = available[start], start
            for action, after in path:
                if after not in available:
                    (available[after],) = self.emit(action, (here,), (f"reshard {at} to {after}",), label)
                    self.held.setdefault(available[after], Held(*of, type_, after))
                here, at = available[after], after
        return available

    def build(self, outputs: Iterable[int]) -> StepPlan:
        """The finished device program, without steps that nothing uses and that have no effects."""
        outputs = tuple(outputs)
        live = set(outputs)
        kept: list[Step] = []
        for step in reversed(self.steps):
            if any(v in live for v in step.results) or step.action.has_effects:
                kept.append(step)
                live.update(step.operands)
        kept.reverse()
        number: dict[int, int] = {v: i for i, v in enumerate(self.inputs)}
        for step in kept:
            for v in step.results:
                number[v] = len(number)
        types = [t for _, t in sorted((n, self.types[v]) for v, n in number.items())]
        steps = tuple(
            replace(s, operands=tuple(number[v] for v in s.operands), results=tuple(number[v] for v in s.results))
            for s in kept
        )
        inputs = tuple(range(len(self.inputs)))
        held = tuple(self.held.get(v) for v in number) if self.held else ()
        return StepPlan(self.mesh, inputs, steps, tuple(number[v] for v in outputs), tuple(types), held)
