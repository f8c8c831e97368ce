"""Timing of steps on the devices present, by JAX, in device programs as plans contain them.

One program runs copies of a step in a loop, each on operands and into results of its own, and is told how often. The
difference between calls that run it more and less often is the time of the steps between them: a call itself, its
arguments and its results cost the same in both. Before each collective its devices multiply two matrices, whose time is
taken off: in programs collectives follow computing, which no two devices end at the same moment, least of all those
that share a processor. Where devices are of several processes, a step takes as long as on the slowest, which all of
them are told: what they time next must be the same. All cases are timed in turn over several rounds, which spreads
noise from other load over all of them. Other load only adds to a time, so the least one counts, and a case whose least
time was met only once is timed in more rounds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from eggshard.calibration.samples import Sample, computing
from eggshard.costmodel.protocol import StepInfo
from eggshard.costmodel.table import Measured
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.types import TensorType, numpy_dtype
from eggshard.steps.control_steps import Loop
from eggshard.steps.steps import Action, Local, Step, StepPlan

#: Copies of a step in a loop's body at most, and the bytes of all their operands and results there: of collectives
#: fewer, which take seconds on slow networks.
_COPIES, _BYTES, _SENT = 4, 1 << 29, 1 << 26
#: Calls that tell how long a program takes, about.
_CALLS = 2
#: Trips of a loop at most, and the seconds that more trips take at least than none, unless one trip takes as long: few,
#: as networks hand on short bursts faster than long ones, and plans send short ones.
_MOST, _SPAN = 1 << 14, 5e-3
#: Calls in each round of programs that take no longer than so many seconds: short ones are the most uncertain.
_OFTEN, _SHORT = 4, 20e-3
#: Times that a case without a time is timed again.
_TRIES = 4
#: How many times as long as the shortest collective the product before it may be.
_LONGER = 3.0
#: The part by which the second least time of a call may exceed the least one; else that may be far from what it takes.
_NEAR = 0.05


@dataclass
class Case:
    """One step to time, in a program that runs ``copies`` of it in each trip of a loop.

    before: what its program runs before each copy. program: seconds of a call with so many trips. trips: of the calls
    that take longer. calls: of both kinds in each round. none, more: seconds of calls without a trip, and with these.
    """

    sample: Sample
    before: Case | None = None
    copies: int = 1
    program: Callable[[int], float] = lambda trips: 0.0
    trips: int = 1
    calls: int = 1
    none: list[float] = field(default_factory=list)
    more: list[float] = field(default_factory=list)

    @property
    def step(self) -> StepInfo:
        return self.sample.step

    def time(self) -> None:
        """Call the program without a trip, and with many."""
        for _ in range(self.calls):
            self.none.append(self.program(0))
            self.more.append(self.program(self.trips))

    @property
    def seconds(self) -> float:
        """Seconds of one step; 0 or less where other load hides them."""
        took = (min(self.more) - min(self.none)) / (self.trips * self.copies * self.sample.fused)
        return took - self.before.seconds if self.before else took

    @property
    def settled(self) -> bool:
        """Whether the least times were met twice."""
        return all(least[1] <= least[0] * (1 + _NEAR) for least in map(sorted, (self.none, self.more)) if least[1:])

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
    arrays: dict[Any, Any] = {}
    product = _product(samples, devices, arrays)
    asked = [Case(sample, product if sample.step.communicates else None) for sample in samples]
    for case in asked:
        _prepare(case, devices, arrays)
        advance(case.step.op or case.step.kind)
    found = asked if product is None else [*asked, product]
    rng = np.random.default_rng(0)
    for number in range(2 * repeats):
        for i in rng.permutation(len(found)):
            case = found[i]
            if number >= repeats and case.settled:
                continue
            case.time()
            if number < repeats and case is not product:
                advance(case.step.op or case.step.kind)
    for case in found:
        for _ in range(_TRIES):  # what took no time at all was lost in what else the machine did
            if case.seconds > 0:
                break
            for _ in range(repeats):
                case.time()
    return Timings([(case.step, case.seconds) for case in asked if case.seconds > 0],
                   float(np.median([case.noise for case in found])))


def _product(samples: Sequence[Sample], devices: Sequence[Any], arrays: dict[Any, Any]) -> Case | None:
    """The largest product that is not too long to tell the collective of the fewest bytes after it from noise.

    None where there is no such product, or no collective.
    """
    sent = [sample for sample in samples if sample.step.communicates]
    if not sent:
        return None

    def timed(sample: Sample) -> Case:
        case = Case(sample)
        _prepare(case, devices, arrays)
        for _ in range(_TRIES):
            case.time()
        return case

    alone = timed(min(sent, key=lambda sample: sample.step.wire_bytes)).seconds
    products = (timed(product) for product in computing(sent[0].mesh))
    return next((case for case in products if case.seconds <= _LONGER * alone), None)


def _prepare(case: Case, devices: Sequence[Any], arrays: dict[Any, Any]) -> None:
    """Compile a case's program, and find how many trips take long enough to be told from none."""
    held = len(devices) * sum(t.bytes for t in (*case.sample.operands, *case.sample.results))
    case.copies = max(1, min(_COPIES, (_SENT if case.before else _BYTES) // held))
    plan = looped(case.sample, case.copies, case.before.sample if case.before else None)
    case.program = _program(plan, devices, arrays)
    none = min(case.program(0) for _ in range(_CALLS))
    while (took := min(case.program(case.trips) for _ in range(_CALLS)) - none) < _SPAN and case.trips < _MOST:
        case.trips = min(_MOST, max(2, min(16, math.ceil(_SPAN / max(took, 1e-6)))) * case.trips)
    case.calls = _OFTEN if none + took <= _SHORT else 1


def rounds(repeats: int) -> int:
    """How often `measure` runs each case."""
    return repeats + 1


def looped(sample: Sample, copies: int, before: Sample | None = None) -> StepPlan:
    """A device program that takes copies of a step in each trip of a loop, each after the one before.

    before: a step on its own result that precedes each copy. Inputs: where the loop's counter starts and where it ends,
    the operands of what is before, the operands and first results of each copy. Outputs: the last results of each copy.
    """
    count, held = TensorType((), "i32"), (*sample.operands, *sample.results)
    first = before.operands if before else ()
    carried = (count, count, *first, *held * copies)
    inputs = tuple(range(len(carried)))
    compared = Local("compare", Attributes(comparison_direction="LT", compare_type="SIGNED"), (TensorType((), "i1"),))
    condition = StepPlan(sample.mesh, inputs, (Step(compared, (0, 1), (len(carried),)),), (len(carried),),
                         (*carried, *compared.result_types))
    types, steps = list(carried), []

    def step(action: Action, *operands: int) -> tuple[int, ...]:
        made = action.result(sample.mesh, tuple(types[v] for v in operands))
        types.extend(made)
        results = tuple(range(len(types) - len(made), len(types)))
        steps.append(Step(action, operands, results))
        return results

    def fence(*values: int) -> tuple[int, ...]:
        return step(Local("optimization_barrier", Attributes({}), tuple(types[v] for v in values)), *values)

    def split(values: tuple[int, ...], own: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return values[:own], values[own:own + len(first)]

    (one,) = step(Local("constant", Attributes(value=Literal(np.array(1, np.int32))), (count,)))
    counted = (*step(Local("add", Attributes({}), (count,)), 0, one), 1)
    at = 2 + len(first)
    yielded: list[int] = []
    computed, last = inputs[2:at], inputs[-len(sample.results):]
    for start in range(at, len(carried), len(held)):
        own = inputs[start:start + len(sample.operands)]
        after, computed = split(fence(*own, *computed, *last), len(own))
        if before:
            made = step(before.action, *computed)
            after, computed = split(fence(*after, *made, *computed[len(made):]), len(own))
        yielded += after
        for _ in range(sample.fused):
            last = step(sample.action, *after)
            after = (*last, *after[len(last):])
        yielded += last
    body = StepPlan(sample.mesh, inputs, tuple(steps), (*counted, *computed, *yielded), tuple(types))
    ends = tuple(range(len(carried), 2 * len(carried)))
    results = tuple(v for start in range(at, len(carried), len(held))
                    for v in ends[start + len(sample.operands):start + len(held)])
    return StepPlan(sample.mesh, inputs, (Step(Loop(condition, body), inputs, ends),), results, carried * 2)


def _program(plan: StepPlan, devices: Sequence[Any], known: dict[Any, Any]) -> Callable[[int], float]:
    """A compiled program (see `looped`), once called; a call with so many trips answers its seconds.

    known: the arrays that programs share.
    """
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    from eggshard.emit.jax_primitive import DeviceModule, call_module
    from eggshard.emit.stablehlo import module_text
    from eggshard.program.placement import place

    axes = tuple(plan.mesh.axes)
    mesh = jax.sharding.Mesh(np.array(devices).reshape(tuple(plan.mesh.axes.values())), axes)

    def whole(values: Sequence[int]) -> tuple[list[TensorType], list[Any], list[Any]]:
        """Stack every device's shard along the rows of one global array per value; scalars are replicated."""
        local = [plan.types[v] for v in values]
        wholes = [t.with_shape((len(devices) * t.shape[0], *t.shape[1:])) if t.shape else t for t in local]
        placed = [place(plan.mesh, t.shape, tuple([axes] + [()] * (t.rank - 1)) if t.shape else ()) for t in wholes]
        return wholes, placed, [NamedSharding(mesh, PartitionSpec(axes) if t.shape else PartitionSpec()) for t in local]

    (inputs, lie, at), (outputs, end, to) = whole(plan.inputs), whole(plan.outputs)

    def text(platform: str) -> str:
        return module_text(plan, inputs, lie, outputs, end, platform=platform)

    module = DeviceModule("main", text, len(devices), tuple(inputs), tuple(outputs), (), (None,) * len(outputs))
    function = jax.jit(lambda *arrays: call_module(module, arrays), in_shardings=tuple(at), out_shardings=to)
    keys = [(mesh, t, inputs[2:i].count(t)) for i, t in enumerate(inputs[2:], 2)]
    for key, sharding in zip(keys, at[2:], strict=True):
        if key not in known:
            ones = np.ones(key[1].shape, numpy_dtype(key[1].dtype))
            known[key] = jax.make_array_from_callback(ones.shape, sharding, lambda at, ones=ones: ones[at])
    arrays = [known[key] for key in keys]

    def call(trips: int) -> float:
        ends = np.int32(0), np.int32(trips)
        began = time.perf_counter()
        jax.block_until_ready(function(*ends, *arrays))
        return slowest(time.perf_counter() - began)

    call(1)
    return call


def slowest(seconds: float) -> float:
    """The most that any process of this program took; all of them ask."""
    import jax

    if jax.process_count() == 1:
        return seconds
    from jax.experimental.multihost_utils import process_allgather

    return float(np.max(process_allgather(np.float32(seconds))))
