"""Timing of steps on the devices present, by JAX, in device programs as plans contain them.

One program runs a step several times in a row, on separate operands and into separate results, and another runs it
once; the difference is the time of the other runs, without the overhead of a call. Results are fresh memory, as in a
plan, where a loop on the device would reuse it. Where devices are of several processes, a step takes as long as on the
slowest, which all of them are told: what they time next must be the same. All cases are timed in turn over several
rounds, which spreads noise from other load over all of them. Other load only adds to a time, so the least one counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from eggshard.calibration.samples import Sample
from eggshard.costmodel.protocol import StepInfo
from eggshard.costmodel.table import Measured
from eggshard.program.attributes import Attributes
from eggshard.program.types import TensorType, numpy_dtype
from eggshard.steps.steps import Local, Step, StepPlan

#: Times that a step runs more in the longer program, at first and at most; bytes of all its operands and results there.
_FIRST, _MOST, _BYTES = 4, 64, 1 << 28
#: Calls that tell how long a program takes, about.
_CALLS = 2
#: Seconds that one timing takes at least, and, where a step allows, at most.
_SPAN, _LONG = 4e-3, 50e-3
#: Times that a case without a time is timed again.
_TRIES = 4


@dataclass
class Case:
    """One step to time, in two programs: once, and ``copies`` times more.

    once, more: seconds of each call of either.
    """

    sample: Sample
    copies: int = 0
    programs: tuple[Callable[[], float], Callable[[], float]] | None = None
    calls: int = 1
    once: list[float] = field(default_factory=list)
    more: list[float] = field(default_factory=list)

    @property
    def step(self) -> StepInfo:
        return self.sample.step

    def time(self) -> None:
        """Call both programs some times."""
        assert self.programs is not None
        for program, times in zip(self.programs, (self.once, self.more), strict=True):
            times += [program() for _ in range(self.calls)]

    @property
    def seconds(self) -> float:
        """Seconds of one step; 0 or less where other load hides them."""
        return (min(self.more) - min(self.once)) / (self.copies * self.sample.fused)

    @property
    def noise(self) -> float:
        """The median of the longer program's times over the least one."""
        return float(np.median(self.more)) / min(self.more)


class Timings(NamedTuple):
    """Steps with their seconds, and the noise of a case in the median (`Case.noise`)."""

    measured: list[Measured]
    noise: float


def measure(
    samples: Sequence[Sample], devices: Sequence[Any], repeats: int = 7,
    advance: Callable[[str], None] = lambda what: None,
) -> Timings:
    """The seconds of each step on these devices; advance: called with a step's kind whenever it was run."""
    found = [Case(sample) for sample in samples]
    arrays: dict[Any, Any] = {}
    for case in found:
        _prepare(case, devices, arrays)
        advance(case.step.op or case.step.kind)
    rng = np.random.default_rng(0)
    for _ in range(repeats):
        for i in rng.permutation(len(found)):
            case = found[i]
            case.time()
            advance(case.step.op or case.step.kind)
    for case in found:
        for _ in range(_TRIES):  # what took no time at all was lost in what else the machine did
            if case.seconds > 0:
                break
            for _ in range(repeats):
                case.time()
    return Timings([(case.step, case.seconds) for case in found if case.seconds > 0],
                   float(np.median([case.noise for case in found])))


def _prepare(case: Case, devices: Sequence[Any], arrays: dict[Any, Any]) -> None:
    """Compile both programs of a case. The longer one runs a step so often that it takes twice as long as the other:
    what a call costs besides its steps varies, and would hide a step that takes less."""
    once = _program(case.sample, 1, devices, arrays)
    least = min(once() for _ in range(_CALLS))
    held = len(devices) * sum(t.bytes for t in (*case.sample.operands, *case.sample.results))
    most = max(1, min(_MOST, _BYTES // held))
    case.copies = max(1, min(_FIRST, most, int(_LONG / max(least, 1e-6))))
    while True:
        more = _program(case.sample, 1 + case.copies, devices, arrays)
        took = min(more() for _ in range(_CALLS))
        if case.copies >= most or took >= min(2 * least, _LONG):
            break
        case.copies = min(most, _FIRST * case.copies)
    case.programs = (once, more)
    case.calls = max(1, min(8, round(_SPAN / max(took, 1e-6))))


def rounds(repeats: int) -> int:
    """How often `measure` runs each case."""
    return repeats + 1


def repeated(sample: Sample, times: int) -> StepPlan:
    """A device program that takes a step some times, each after the one before, on operands of its own."""
    types: list[TensorType] = []

    def values(of: Sequence[TensorType]) -> tuple[int, ...]:
        types.extend(of)
        return tuple(range(len(types) - len(of), len(types)))

    operands = [values(sample.operands) for _ in range(times)]
    inputs = tuple(range(len(types)))
    steps: list[Step] = []
    outputs: list[int] = []
    for own in operands:
        if outputs:  # a barrier, so that no two of them are made one
            last = outputs[-len(sample.results):]
            held = [types[v] for v in (*own, *last)]
            after = values(held)
            steps.append(Step(Local("optimization_barrier", Attributes({}), tuple(held)), (*own, *last), after))
            own = after[: len(own)]
        for _ in range(sample.fused):
            results = values(sample.results)
            steps.append(Step(sample.action, own, results))
            own = (*results, *own[len(results):])
        outputs += results
    return StepPlan(sample.mesh, inputs, tuple(steps), tuple(outputs), tuple(types))


def _program(sample: Sample, times: int, devices: Sequence[Any], known: dict[Any, Any]) -> Callable[[], float]:
    """A compiled program of a step, once called; a call answers its seconds. known: the arrays that programs share."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    from eggshard.emit.jax_primitive import DeviceModule, call_module
    from eggshard.emit.stablehlo import module_text
    from eggshard.program.placement import place

    plan, axes = repeated(sample, times), tuple(sample.mesh.axes)
    mesh = jax.sharding.Mesh(np.array(devices).reshape(tuple(sample.mesh.axes.values())), axes)

    def whole(values: Sequence[int]) -> tuple[list[TensorType], list[Any], list[Any]]:
        """Stack every device's shard along the rows of one global array per value; scalars are replicated."""
        local = [plan.types[v] for v in values]
        wholes = [t.with_shape((len(devices) * t.shape[0], *t.shape[1:])) if t.shape else t for t in local]
        placed = [place(sample.mesh, t.shape, tuple([axes] + [()] * (t.rank - 1)) if t.shape else ()) for t in wholes]
        return wholes, placed, [NamedSharding(mesh, PartitionSpec(axes) if t.shape else PartitionSpec()) for t in local]

    (inputs, lie, at), (outputs, end, to) = whole(plan.inputs), whole(plan.outputs)

    def text(platform: str) -> str:
        return module_text(plan, inputs, lie, outputs, end, platform=platform)

    module = DeviceModule("main", text, len(devices), tuple(inputs), tuple(outputs), (), (None,) * len(outputs))
    function = jax.jit(lambda *arrays: call_module(module, arrays), in_shardings=tuple(at), out_shardings=to)
    keys = [(mesh, t, inputs[:i].count(t)) for i, t in enumerate(inputs)]
    for key, sharding in zip(keys, at, strict=True):
        if key not in known:
            ones = np.ones(key[1].shape, numpy_dtype(key[1].dtype))
            known[key] = jax.make_array_from_callback(ones.shape, sharding, lambda at, ones=ones: ones[at])
    arrays = [known[key] for key in keys]

    def call() -> float:
        began = time.perf_counter()
        jax.block_until_ready(function(*arrays))
        return slowest(time.perf_counter() - began)

    call()
    return call


def slowest(seconds: float) -> float:
    """The most that any process of this program took; all of them ask."""
    import jax

    if jax.process_count() == 1:
        return seconds
    from jax.experimental.multihost_utils import process_allgather

    return float(np.max(process_allgather(np.float32(seconds))))
