"""Pricing of actions with a cost model: the one place where a user's model is called, checked and cached."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from eggshard.costmodel.columns import StepColumns, seconds_many
from eggshard.costmodel.protocol import CostModel, StepInfo
from eggshard.costmodel.schedule import COMPUTE, Schedule, Work, timeline
from eggshard.errors import CostModelError
from eggshard.ops import registry
from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType
from eggshard.steps.control_steps import Branch, Loop, price_of_loop
from eggshard.steps.moves import Copies
from eggshard.steps.steps import Action, Local, StepPlan

#: Ops that only rename elements: compilers fold them into layouts and consumers, and extraction does not see them.
FREE_OPS = ("reshape", "transpose")


def step_info(mesh: Mesh, action: Action, operands: tuple[TensorType, ...]) -> StepInfo:
    """What a cost model sees of an action on shards of these types."""
    if isinstance(action, Local) and action.name in FREE_OPS:
        return StepInfo("local", mesh, op=action.name, dtype=operands[0].dtype)
    touched = float(action.touched(mesh, operands))
    types = operands or action.result(mesh, operands)
    dtype = types[0].dtype if types else "f32"
    if isinstance(action, Local):
        return StepInfo("local", mesh, op=action.name, flops=action.flops, memory_bytes=touched, dtype=dtype)
    wire = action.busiest(mesh, operands) if action.messages else 0.0
    copies = action.copied(mesh, operands) if action.messages else Copies()
    return StepInfo(
        action.kind, mesh, axes=action.axes, group=mesh.count(action.axes) if action.axes else 1,
        wire_bytes=wire, messages=action.messages, memory_bytes=touched, dtype=dtype, hops=action.hops,
        copied_bytes=copies.bytes, runs=copies.runs,
    )


def op_info(mesh: Mesh, op: str, attributes: Attributes, operands: tuple[TensorType, ...],
            results: tuple[TensorType, ...]) -> StepInfo:
    """What a cost model sees of a local op on these types."""
    dtype = (operands or results)[0].dtype if (operands or results) else "f32"
    if op in FREE_OPS:
        return StepInfo("local", mesh, op=op, dtype=dtype)
    definition = registry.get(op)
    return StepInfo("local", mesh, op=op, flops=definition.flops(attributes, operands, results),
                    memory_bytes=definition.touched(operands, results), dtype=dtype)


class Pricer:
    """Checked prices on one mesh; equal steps are priced once."""

    def __init__(self, model: CostModel, mesh: Mesh):
        if isinstance(model, type):
            raise CostModelError(f"{model.__name__} is a class; give an instance, {model.__name__}()")
        if not callable(getattr(model, "seconds", None)):
            raise CostModelError(
                f"{model!r} is no cost model: it has no method seconds(step); give one by name, such as "
                "'h100-node', or one of eggshard.costmodel, such as AlphaBeta() or WireBytes()"
            )
        self.model, self.mesh = model, mesh
        #: The part of a collective's seconds that computing can hide.
        self.overlap = _overlap(model)
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
                raise _raised(self.model, error, str(step)) from error
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

    def many(self, steps: StepColumns) -> np.ndarray:
        """The model's prices of many steps, ``[steps]``; errors as of one."""
        try:
            found = seconds_many(self.model, steps)
        except CostModelError:
            raise
        except Exception as error:
            raise _raised(self.model, error, f"{len(steps)} steps") from error
        bad = np.flatnonzero(~(np.isfinite(found) & (found >= 0)))
        if len(bad):
            raise CostModelError(
                f"cost model {type(self.model).__name__} answered {found[bad[0]]} on {steps.step(int(bad[0]))}; a "
                "price is a finite number of seconds, >= 0"
            )
        return found

    @property
    def takes_many(self) -> bool:
        """Whether the model prices many steps in one call."""
        return callable(getattr(self.model, "seconds_many", None))

    def ahead(self, actions: Iterable[tuple[Action, TensorType]]) -> None:
        """Price many actions on one operand in one call of a model that takes many; they are known from then on."""
        if self.takes_many:
            found = {(a, (t,)): step_info(self.mesh, a, (t,)) for a, t in actions if (a, (t,)) not in self._actions}
            self.know(found.values())
            self._actions.update((key, self.info(step)) for key, step in found.items())

    def know(self, steps: Iterable[StepInfo]) -> None:
        """Have the model price in one call those of the steps whose prices are not known."""
        fresh = list(dict.fromkeys(step for step in steps if step not in self.known))
        if len(fresh) > 1 and self.takes_many:
            self.known.update(zip(fresh, self.many(StepColumns.of(fresh)).tolist(), strict=True))

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

    def channels(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """The links that a collective over these axes holds (no axes: over all of them)."""
        asked = getattr(self.model, "channels", None)
        if asked is None:
            return ("network",)
        try:
            found = tuple(asked(axes or tuple(self.mesh.axes), self.mesh))
        except CostModelError:
            raise
        except Exception as error:
            raise _raised(self.model, error, f"channels({axes}, {self.mesh})") from error
        if not found or COMPUTE in found or not all(isinstance(name, str) for name in found):
            raise CostModelError(
                f"cost model {type(self.model).__name__} has channels {found!r} for a collective over {axes}; give the "
                f"names of one or more links, other than {COMPUTE!r}"
            )
        return found

    def work(self, action: Action, *operands: TensorType) -> Work:
        """What an action on shards of these types takes of the machine. A loop that communicates holds all of it."""
        seconds = self(action, *operands)
        if not action.messages:
            return Work(seconds, seconds)
        if isinstance(action, (Loop, Branch)):
            return Work(seconds, seconds, self.channels(()))
        return Work(seconds, (1 - self.overlap) * seconds, self.channels(action.axes))

    def schedule(self, plan: StepPlan) -> Schedule:
        """When each step of a device program runs."""
        return timeline(plan, self)

    def program(self, plan: StepPlan) -> float:
        """The price of a device program: the time that its schedule takes; without overlap its steps added up."""
        return self.schedule(plan).makespan if self.overlap else self.total(plan)

    def total(self, plan: StepPlan) -> float:
        """The prices of a device program's steps added up."""
        return sum((self(s.action, *(plan.types[v] for v in s.operands)) for s in plan.steps), 0.0)

    def parts(self, action: Action, *operands: TensorType) -> tuple[float, float]:
        """The seconds of communication and of computing in an action on shards of these types, one after the other.

        A loop has those of all its iterations, a branch those of its dearest one.
        """
        if isinstance(action, Loop):
            asked, done = self.parts_of(action.condition), self.parts_of(action.body)
            return (price_of_loop(action.trips, asked[0], done[0]), price_of_loop(action.trips, asked[1], done[1]))
        if isinstance(action, Branch):
            return self.parts_of(max(action.branches, key=self.program))
        seconds = self(action, *operands)
        return (seconds, 0.0) if action.messages else (0.0, seconds)

    def parts_of(self, plan: StepPlan) -> tuple[float, float]:
        """The seconds of communication and of computing in a device program, one after the other."""
        found = [self.parts(s.action, *(plan.types[v] for v in s.operands)) for s in plan.steps]
        return sum((sent for sent, _ in found), 0.0), sum((computed for _, computed in found), 0.0)

    def compute(self, op: str, flops: float, memory_bytes: float, dtype: str) -> float:
        """The price of a local op with these figures, in seconds."""
        if op in FREE_OPS:
            flops = memory_bytes = 0.0
        return self.info(StepInfo("local", self.mesh, op=op, flops=flops, memory_bytes=memory_bytes, dtype=dtype))


class Weighted(Pricer):
    """Prices of which those of any one plan add up to no more than the time that its schedule takes.

    A schedule takes as long as every resource is held, so as long as a weighted mean of these times says: a step's
    price is its seconds on each resource times the resource's weight. Loops and branches that communicate hold all.

    base: prices of a model. weights: of the compute stream and of every channel; not negative, with sum 1.
    """

    def __init__(self, base: Pricer, weights: Mapping[str, float]):
        super().__init__(base.model, base.mesh)
        self.base, self.weights = base, weights

    def info(self, step: StepInfo) -> float:
        """The model's price of a step, weighted."""
        return self._weight(step) * self.base.info(step)

    def many(self, steps: StepColumns) -> np.ndarray:
        """The model's prices of many steps, weighted."""
        communicating = [self._weight(replace(head, messages=1)) for head in steps.heads]
        weights = np.where(steps.messages > 0, np.array(communicating)[steps.head], self.weights[COMPUTE])
        prices: np.ndarray = weights * self.base.many(steps)
        return prices

    def know(self, steps: Iterable[StepInfo]) -> None:
        self.base.know(steps)

    def _weight(self, step: StepInfo) -> float:
        weight = self.weights[COMPUTE]
        if step.communicates:
            weight = weight * (1 - self.overlap) + sum(self.weights[c] for c in self.channels(step.axes))
        return weight

    def __call__(self, action: Action, *operands: TensorType) -> float:
        if isinstance(action, (Loop, Branch)):
            return self.base(action, *operands) * (1.0 if action.messages else self.weights[COMPUTE])
        return super().__call__(action, *operands)

    def program(self, plan: StepPlan) -> float:
        """What the base says: bodies of loops are compared by the time that they take."""
        return self.base.program(plan)


class Chains(Pricer):
    """Prices of which those of steps that wait for one another add up to no more than the time of the schedule.

    They are the base's own, but for a device program that stands for one op: no result of it is there before its
    last input, and the shortest of the longest chains of steps between an input and a result. `NEVER`, where some
    result does not wait for some input.
    """

    #: A price that takes back whatever came before.
    NEVER = -1e9

    def __init__(self, base: Pricer):
        super().__init__(base.model, base.mesh)
        self.base = base

    def info(self, step: StepInfo) -> float:
        return self.base.info(step)

    def many(self, steps: StepColumns) -> np.ndarray:
        return self.base.many(steps)

    def know(self, steps: Iterable[StepInfo]) -> None:
        self.base.know(steps)

    def program(self, plan: StepPlan) -> float:
        return self.base.program(plan)

    def total(self, plan: StepPlan) -> float:
        price = [self(s.action, *(plan.types[v] for v in s.operands)) for s in plan.steps]
        least = math.inf
        for output in plan.outputs:
            rest = {output: 0.0}  # per value the longest chain from it to the output
            for step, seconds in zip(reversed(plan.steps), reversed(price), strict=True):
                after = max((rest[v] for v in step.results if v in rest), default=None)
                if after is not None:
                    rest.update({v: max(rest.get(v, 0.0), after + seconds) for v in step.operands})
                    least = least if plan.inputs else min(least, after + seconds)
            least = min([least, *(rest.get(v, self.NEVER) for v in plan.inputs)])
        return least if least < math.inf else 0.0


def _overlap(model: CostModel) -> float:
    answer = getattr(model, "overlap", 0.0)
    try:
        overlap = float(answer)
    except (TypeError, ValueError):
        overlap = math.nan
    if not 0 <= overlap <= 1:
        raise CostModelError(
            f"cost model {type(model).__name__} has overlap {answer!r}; it is the part of a collective's seconds that "
            "computing can hide, from 0 to 1"
        )
    return overlap


def _raised(model: CostModel, error: Exception, what: str) -> CostModelError:
    return CostModelError(f"cost model {type(model).__name__} raised {type(error).__name__}: {error} on {what}")
