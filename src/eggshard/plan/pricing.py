"""Pricing actions with a cost model: the one place where a user's model is called, checked and remembered."""

from __future__ import annotations

import math

from eggshard.costmodel.protocol import CostModel, StepInfo
from eggshard.errors import CostModelError
from eggshard.plan.control_steps import Branch, Loop, price_of_loop
from eggshard.plan.steps import Action, Local, StepPlan
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType

#: Ops that only rename elements: compilers fold them into layouts and consumers, and extraction does not see them.
FREE_OPS = ("reshape", "transpose")


def step_info(mesh: Mesh, action: Action, operands: tuple[TensorType, ...]) -> StepInfo:
    """What a cost model sees of an action on shards of these types."""
    results = action.result(mesh, operands)
    if isinstance(action, Local) and action.name in FREE_OPS:
        return StepInfo("local", mesh, op=action.name, dtype=operands[0].dtype)
    touched = sum(t.bytes for t in operands) + sum(t.bytes for t in results) + action.staged(mesh, operands)
    dtype = operands[0].dtype if operands else results[0].dtype if results else "f32"
    if isinstance(action, Local):
        return StepInfo("local", mesh, op=action.name, flops=action.flops, memory_bytes=float(touched), dtype=dtype)
    wire = action.busiest(mesh, operands) if action.messages else 0.0
    return StepInfo(
        action.kind, mesh, axes=action.axes, group=mesh.count(action.axes) if action.axes else 1,
        wire_bytes=wire, messages=action.messages, memory_bytes=float(touched), dtype=dtype, hops=action.hops,
    )


class Pricer:
    """Checked prices on one mesh; equal steps are priced once."""

    def __init__(self, model: CostModel, mesh: Mesh):
        if isinstance(model, type):
            raise CostModelError(f"{model.__name__} is a class; give an instance, {model.__name__}()")
        if not callable(getattr(model, "seconds", None)):
            raise CostModelError(
                f"{model!r} is no cost model: it has no method seconds(step); eggshard.costmodel has AlphaBeta, e.g. "
                "AlphaBeta.preset('h100-node'), WireBytes and Messages"
            )
        self.model, self.mesh = model, mesh
        self.known: dict[StepInfo, float] = {}
        self._actions: dict[tuple[Action, tuple[TensorType, ...]], float] = {}

    def info(self, step: StepInfo) -> float:
        """The model's price of a step; CostModelError if it raises, or answers no finite non-negative number."""
        price = self.known.get(step)
        if price is None:
            name = type(self.model).__name__
            try:
                answer = self.model.seconds(step)
            except CostModelError:
                raise
            except Exception as error:
                raise CostModelError(f"cost model {name} raised {type(error).__name__}: {error} on {step}") from error
            try:
                price = math.nan if isinstance(answer, (str, bytes)) else float(answer)
            except (TypeError, ValueError, OverflowError):
                price = math.nan
            if not math.isfinite(price) or price < 0:
                raise CostModelError(
                    f"cost model {name} answered {answer!r} on {step}; a price is a finite number of seconds, >= 0"
                )
            self.known[step] = price
        return price

    def __call__(self, action: Action, *operands: TensorType) -> float:
        """The price of an action on shards of these types, in seconds."""
        key = (action, operands)
        price = self._actions.get(key)
        if price is None:
            if isinstance(action, Loop):
                price = price_of_loop(action.trips, self.program(action.condition), self.program(action.body))
            elif isinstance(action, Branch):
                price = max(self.program(b) for b in action.branches)
            else:
                price = self.info(step_info(self.mesh, action, operands))
            self._actions[key] = price
        return price

    def program(self, plan: StepPlan) -> float:
        """The price of a device program: its steps added up."""
        return sum(self(s.action, *(plan.types[v] for v in s.operands)) for s in plan.steps)

    def compute(self, op: str, flops: float, memory_bytes: float, dtype: str) -> float:
        """The price of a local op with these figures, in seconds."""
        if op in FREE_OPS:
            flops = memory_bytes = 0.0
        return self.info(StepInfo("local", self.mesh, op=op, flops=flops, memory_bytes=memory_bytes, dtype=dtype))
