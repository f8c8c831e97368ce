"""A runner of a device program on one device, with values in its workspace slice and messages by a communicator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from mmap import PAGESIZE
from typing import NamedTuple, Protocol

import numpy as np

from eggshard.engines.ranks.communicator import Buffer, Communicator
from eggshard.engines.ranks.traffic import Traffic, moves_data, traffic_of
from eggshard.engines.ranks.view import DeviceView, perform_alone
from eggshard.engines.workspace.steps import Path, nested, state_name, value_name
from eggshard.errors import EggshardError, LoweringError
from eggshard.program.types import TOKEN, TensorType, mlir_dtype
from eggshard.simulate.device_arrays import poisoned
from eggshard.steps.authored_steps import OnFirstDevice
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.steps import Step, StepPlan

Buffers = tuple[Buffer, ...]


class Offset(Protocol):
    """Where a request's slot begins in a slice, in bytes: `Layout.offset` at the launch's symbols."""

    def __call__(self, name: str, *, slot: int = 0) -> int: ...


class RunReport(NamedTuple):
    """One run: seconds of the slowest device, or of this one; bytes of the workspace as planned, of all devices or of
    this one; and bytes of the pages of it that were ever touched (None where the system does not tell)."""

    seconds: float
    planned: int
    measured: int | None

    def __str__(self) -> str:
        measured = "not measured" if self.measured is None else f"{self.measured} touched (pages of {PAGESIZE})"
        return f"{self.seconds * 1e3:.1f} ms; workspace: {self.planned} bytes planned, {measured}"


class Station(NamedTuple):
    """A step of the program or of one nested in it: the nested program's path, the step's index there, and a text."""

    path: Path
    step: int
    text: str

    def __str__(self) -> str:
        return f"step {'.'.join(map(str, (*self.path, self.step)))} ({self.text})"


def stations(program: StepPlan, path: Path = ()) -> list[Station]:
    """All steps in the order of the text, those of nested programs after the loop or branch that holds them."""
    out = []
    for i, step in enumerate(program.steps):
        what = step.action.local.name if isinstance(step.action, OnFirstDevice) else getattr(step.action, "name", "")
        out.append(Station(path, i, " ".join(filter(None, (step.action.kind, what, step.label)))))
        for part, inner in nested(step):
            out += stations(inner, (*path, i, *part))
    return out


def communicates(step: Step) -> bool:
    """Whether some step in it, or it, sends messages however often it runs."""
    inner = nested(step)
    if not inner:
        return step.action.messages > 0
    return any(communicates(each) for _, program in inner for each in program.steps)


def fill_outside(traffic: Traffic, results: list[np.ndarray]) -> None:
    """Fill results with what they hold outside the pieces, before any piece comes."""
    for result in results:
        if traffic.outside == "poison":
            result[...] = poisoned((), result.dtype)
        elif traffic.outside == "zeros":
            result[...] = np.zeros((), result.dtype)


@dataclass
class _Bound:
    """A program at fixed places of its inputs: its steps as calls, made when they are first reached."""

    plan: StepPlan
    path: Path
    places: dict[int, Buffer]
    steps: list[Callable[[], None]] = field(default_factory=list)

    @property
    def outputs(self) -> Buffers:
        return tuple(self.places[v] for v in self.plan.outputs)


class Runner:
    """Runs a device program on one device.

    memory: the device's slice, bytes. offset: where each request of `workspace_of` lies in it. reached: told the
    number of each step in `stations` before it runs; passed: called after each step that is no loop or branch.

    LoweringError for a step that NumPy does not know, or results of other types than stated.
    """

    def __init__(
        self, program: StepPlan, offset: Offset, memory: np.ndarray, communicator: Communicator,
        reached: Callable[[int], None] | None = None, passed: Callable[[], None] | None = None,
    ):
        self._offset, self._memory, self._communicator = offset, memory, communicator
        self._view = DeviceView(program.mesh, communicator.device)
        self._reached, self._passed = reached, passed
        self._stations = stations(program)
        self._numbers = {(s.path, s.step): n for n, s in enumerate(self._stations)}
        self._known: dict[tuple[Path, tuple[int, ...]], _Bound] = {}
        self._program = program

    @property
    def inputs(self) -> Buffers:
        """Where the program's inputs are to be before it runs."""
        return tuple(self._own(self._program, (), v) for v in self._program.inputs)

    @property
    def outputs(self) -> Buffers:
        """Where the program's outputs are after it ran."""
        return tuple(self._own(self._program, (), v) for v in self._program.outputs)

    def run(self) -> None:
        """Outputs from inputs, in place of the workspace."""
        self._execute(self._program, (), self.inputs)

    def _own(self, plan: StepPlan, path: Path, value: int) -> Buffer:
        return Buffer(self._offset(value_name(path, value)), plan.types[value])

    def _execute(self, plan: StepPlan, path: Path, inputs: Buffers) -> Buffers:
        key = path, tuple(b.offset for b in inputs)
        if key not in self._known:
            places = dict(zip(plan.inputs, inputs, strict=True))
            for step in plan.steps:
                places.update((v, self._own(plan, path, v)) for v in step.results)
            self._known[key] = _Bound(plan, path, places)
        bound = self._known[key]
        for i, step in enumerate(plan.steps):
            number = self._numbers[path, i]
            if self._reached is not None:
                self._reached(number)
            try:
                if i == len(bound.steps):
                    bound.steps.append(self._call(bound, i, step))
                bound.steps[i]()
                if self._passed is not None and not nested(step):
                    self._passed()
            except EggshardError as error:
                if not error.located:
                    error.located = True
                    error.args = (f"device {self._view.device}, {self._stations[number]}: {error}",)
                raise
        return bound.outputs

    def _call(self, bound: _Bound, i: int, step: Step) -> Callable[[], None]:
        """The step as a call without arguments. All devices make those that communicate in the same order."""
        plan, path, action = bound.plan, bound.path, step.action
        operands = tuple(bound.places[v] for v in step.operands)
        results = tuple(bound.places[v] for v in step.results)
        if isinstance(action, Loop):
            return lambda: self._loop(path, i, step, action, operands, results)
        if isinstance(action, Branch):
            return lambda: self._branch(path, i, step, action, operands, results)
        for b in (*operands, *results):
            if b.type.dtype == TOKEN:
                raise LoweringError("its order among effects is a token, which arrays do not hold; run the plan on JAX")
        types = tuple(plan.types[v] for v in step.operands)
        if not moves_data(action):
            return self._alone(step, operands, results)
        for stated, b in zip(action.result(self._view.whole, types), results, strict=True):
            _fits(stated, b)
        traffic = traffic_of(self._view.whole, action, types, self._view.device)
        channel = self._communicator.prepare(str(self._stations[self._numbers[path, i]]), traffic, operands, results)

        def move() -> None:
            channel.start()
            channel.finish()

        return move

    def _alone(self, step: Step, operands: Buffers, results: Buffers) -> Callable[[], None]:
        read, written = self._views(operands), self._views(results)
        for array in read:
            array.flags.writeable = False

        def perform() -> None:
            # An op may answer with views of its operands; results lie apart from them.
            made = perform_alone(self._view, step.action, read)
            for array, place, b in zip(made, written, results, strict=True):
                array = np.asarray(array)
                _fits(TensorType(array.shape, mlir_dtype(array.dtype)), b)
                place[...] = array

        return perform

    def _loop(self, path: Path, i: int, step: Step, action: Loop, operands: Buffers, results: Buffers) -> None:
        slots = [
            tuple(
                Buffer(self._offset(state_name(path, i, k), slot=slot), b.type) for k, b in enumerate(operands)
            ) for slot in (0, 1)
        ]
        self._copy(operands, slots[0])
        agreed = communicates(step)
        iteration = 0
        while True:
            (going,) = self._execute(action.condition, (*path, i, "condition"), slots[iteration % 2])
            answer = bool(self._views((going,))[0])
            if agreed:
                self._communicator.agree(int(answer), "the condition of a loop that communicates")
            if not answer:
                break
            made = self._execute(action.body, (*path, i, "body"), slots[iteration % 2])
            iteration += 1
            self._copy(made, slots[iteration % 2])
        self._copy(slots[iteration % 2], results)

    def _branch(self, path: Path, i: int, step: Step, action: Branch, operands: Buffers, results: Buffers) -> None:
        selector = int(self._views(operands[:1])[0])
        if communicates(step):
            self._communicator.agree(selector, "the selector of a branch that communicates")
        last = len(action.branches) - 1
        if action.predicate:
            taken = 0 if selector else 1
        else:
            taken = selector if 0 <= selector <= last else last
        made = self._execute(action.branches[taken], (*path, i, "branch", taken), operands[1:])
        self._copy(made, results)

    def _views(self, buffers: Buffers) -> tuple[np.ndarray, ...]:
        return tuple(b.view(self._memory) for b in buffers)

    def _copy(self, source: Buffers, target: Buffers) -> None:
        for s, t, a, b in zip(source, target, self._views(source), self._views(target), strict=True):
            _fits(s.type, t)
            if s.offset != t.offset:
                b[...] = a


def _fits(type_: TensorType, place: Buffer) -> None:
    """LoweringError unless a result has the type that the plan states of it."""
    if type_ != place.type:
        raise LoweringError(f"its result is {type_}, but the plan states {place.type}")
