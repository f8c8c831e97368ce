"""One program through ours and the peers, in one run: bytes counted from compiled programs, times as ratios."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import eggshard
from bench import enzyme, peers
from bench.lower_bound import lower_bound
from bench.programs import BenchProgram
from bench.widening import count_as_written
from eggshard.api import Plan
from eggshard.costmodel import WireBytes
from eggshard.hlo.collectives import count_collectives
from eggshard.limits import Limits
from eggshard.steps.steps import AllGather, Local


@dataclass
class Row:
    """Figures of one program. Bytes are per device, step by step (the busiest device of each, added up).

    written: what is counted with every collective in the element type that the plan has it in.
    """

    name: str
    family: str
    origin: str = ""
    control: bool = False
    predicted: float | None = None
    counted: float | None = None
    written: float | None = None
    collectives: dict[str, int] = field(default_factory=dict)
    fallback: str = ""
    replicated: tuple[str, ...] = ()
    promoted: tuple[str, ...] = ()
    gap: float | None = None
    seconds: float | None = None
    stages: dict[str, float] = field(default_factory=dict)
    flops: float | None = None
    error: str = ""
    verified: str = ""
    algebra_off: float | None = None
    doubled: float | None = None
    exact: float | None = None
    xla: float | None = None
    xla_collectives: dict[str, int] = field(default_factory=dict)
    xla_seconds: float | None = None
    xla_flops: float | None = None
    rematerialized: bool = False
    shardy: float | None = None
    shardy_note: str = ""
    bound: float | None = None
    messages: int | None = None
    known: float | None = None
    most: float | None = None
    flagged: float | None = None
    flagged_note: str = ""
    enzyme: float | None = None
    enzyme_setting: str = ""
    enzyme_note: str = ""
    enzyme_settings: dict[str, Any] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        """The figures as JSON values."""
        return asdict(self)

    @property
    def best_peer(self) -> float | None:
        """The fewest bytes of a peer."""
        known = [b for b in (self.xla, self.shardy, self.flagged, self.enzyme) if b is not None]
        return min(known) if known else None

    @property
    def failures(self) -> list[str]:
        """What is wrong with our plan, in words; empty where nothing is."""
        out = []
        if self.error:
            return [self.error]
        if self.fallback:
            out.append(f"fell back: {self.fallback}")
        fewer = self.counted is not None and self.best_peer is not None and self.counted < self.best_peer - 0.5
        if self.replicated and not fewer:  # else it is a way of its own, and no strategy missed
            out.append("replicates " + ", ".join(self.replicated))
        if self.written is not None and self.predicted is not None and abs(self.written - self.predicted) > 0.5:
            out.append(f"counted {self.written:.0f} B, predicted {self.predicted:.0f} B")
        ours = self.predicted if self.promoted else self.counted
        peer = self.shardy if self.promoted else self.best_peer
        if ours is not None and peer is not None and ours > peer + 0.5:
            out.append("more bytes than a peer")
        if ours is not None and self.most is not None and ours > self.most + 0.5:
            out.append(f"{ours:.0f} B, best known {self.most:.0f} B")
        if self.gap is not None and self.gap > 0.01 and self.predicted:  # nothing is less than no bytes
            out.append(f"gap {100 * self.gap:.1f} %")
        if self.doubled is not None and self.predicted is not None and self.doubled < 0.99 * self.predicted:
            out.append(f"doubled caps give {self.doubled:.0f} B")
        return out


def run(
    program: BenchProgram, *, ablations: bool = True, verify: bool = True, flag: bool = False, passes: bool = False
) -> Row:
    """All figures of one program. An error of ours is a failure in the row, never hidden.

    flag, passes: compare with XLA's flag for halos too, and with the passes of another package (`bench.enzyme`).
    """
    row = Row(program.name, program.family, program.origin, program.control, known=program.known, most=program.most)
    source: Any = program.text if program.text is not None else program.lower()
    gc.collect()
    began = time.perf_counter()
    plan = None
    with warnings.catch_warnings(), _in_the_row(row):
        warnings.simplefilter("ignore", eggshard.EggshardWarning)
        plan = eggshard.optimize(source, cost_model=WireBytes())
    row.seconds = time.perf_counter() - began
    _peers(row, program)
    text = program.module if flag or passes else ""
    with ThreadPoolExecutor(1) as beside:  # other processes, beside what is not timed here
        others = beside.submit(_window_peers, row, text, flag, passes)
        if plan is not None:
            with _in_the_row(row):
                _ours(row, plan)
                if verify:
                    row.verified = str(plan.verify(inputs=program.inputs() if program.own_inputs else None))
        others.result()
    if ablations and plan is not None:
        row.algebra_off = float(eggshard.optimize(source, cost_model=WireBytes(), rewrites=[]).serial_bytes)
        row.doubled = float(eggshard.optimize(source, cost_model=WireBytes(), limits=Limits().doubled()).serial_bytes)
        row.exact = float(eggshard.optimize(source, cost_model=WireBytes(), exact=True).serial_bytes)
    return row


@contextmanager
def _in_the_row(row: Row) -> Iterator[None]:
    """What goes wrong with our plan is the row's error."""
    try:
        yield
    except Exception as error:
        row.error = f"{type(error).__name__}: {error}"


def _ours(row: Row, plan: Plan) -> None:
    row.predicted = float(plan.serial_bytes)
    row.collectives = plan.collectives
    row.messages = sum(plan.collectives.values())
    row.fallback = plan.search.fallback
    row.gap = plan.search_gap
    row.stages = dict(plan.search.seconds)
    row.flops = plan.flops
    row.replicated = replicated_ops(plan)
    text = plan.to_stablehlo()
    compiled = peers.compile_text(text).hlo_modules()[0].to_string()
    count = count_collectives(compiled)
    row.counted, row.written = count.wire_bytes, count_as_written(text, compiled).wire_bytes
    row.promoted = promotions(plan, count)


def replicated_ops(plan: Plan) -> tuple[str, ...]:
    """Ops of the program that every device computes whole, on operands that were all-gathered whole for them.

    That is the way to hide a missing strategy; ops that only move elements (views, slices, pads) are no computation.
    """
    whole = {t.shape for t in plan.program.region.types if t.elements > 1}
    gathered = {v for s in plan.steps if isinstance(s.action, AllGather) for v in s.results}
    return tuple(sorted({
        s.action.name
        for s in plan.steps
        if isinstance(s.action, Local) and s.action.name not in _MOVEMENT and plan.mesh.size > 1
        and s.operands and all(v in gathered for v in s.operands)
        and any(t.shape in whole for t in s.action.result_types)
    }))


_MOVEMENT = frozenset({
    "transpose", "reshape", "broadcast_in_dim", "slice", "pad", "concatenate", "reverse", "dynamic_slice", "convert",
    "rotate", "wrap", "extend",
})


def promotions(plan: Plan, count: Any) -> tuple[str, ...]:
    """Element types that the compiled collectives use and the plan does not (the back end widened them)."""
    spelled = {"i1": "pred", "complex<f32>": "c64", "complex<f64>": "c128"}
    planned = set()
    for step in plan.steps:
        if step.action.messages:
            for v in step.operands:
                dtype = plan.device_program.types[v].dtype
                short = dtype.replace("ui", "u") if dtype.startswith("ui") else dtype
                planned.add(spelled.get(dtype, "s" + short[1:] if short.startswith("i") else short))
    return tuple(sorted({d for op in count.ops for d in op.dtypes} - planned))


def _peers(row: Row, program: BenchProgram) -> None:
    theirs = peers.xla(program)
    row.xla, row.xla_seconds, row.xla_flops = theirs.wire_bytes, theirs.seconds, theirs.flops
    row.xla_collectives = theirs.count.by_kind if theirs.count else {}
    row.rematerialized = theirs.rematerialized
    shardy = peers.shardy(program)
    row.shardy, row.shardy_note = shardy.least_wire_bytes, shardy.reason
    if program.reshard is not None:
        row.bound = float(lower_bound(program.reshard).maximum)


def _window_peers(row: Row, text: str, flag: bool, passes: bool) -> None:
    if flag:
        flagged = enzyme.flagged(text)
        row.flagged, row.flagged_note = flagged.wire_bytes, flagged.reason
    if passes:
        theirs = enzyme.peer(text)
        row.enzyme_note, row.enzyme_settings = theirs.note, theirs.json()
        if theirs.least is not None:
            row.enzyme_setting, row.enzyme = theirs.least


def warm_up() -> None:
    """Start the worker and load what every first call loads, on a program that no family holds."""
    builder = eggshard.ProgramBuilder({"a": 2})
    x = builder.input((6, 10), "f32", ("a", None))
    builder.output(builder.tanh(x + x), (None, "a"))
    eggshard.optimize(builder.build(), cost_model=WireBytes()).baseline.to_stablehlo()


def run_all(programs: Sequence[BenchProgram], *, progress: Any = None, **what: bool) -> list[Row]:
    """Every program in turn; ``what`` as in `run`."""
    warm_up()
    rows = []
    for program in programs:
        rows.append(run(program, **what))
        if progress is not None:
            progress(rows[-1])
    return rows
