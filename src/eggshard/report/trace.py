"""Traces of plans for Perfetto and XProf: when each step runs on a device and on its links, as priced and as measured.

All devices run one program, so one stands for all. A loop shows the steps of its first iteration within it.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from eggshard.costmodel.pricing import Pricer
from eggshard.costmodel.schedule import COMPUTE, Schedule, timeline
from eggshard.costmodel.units import SECONDS
from eggshard.errors import EggshardError
from eggshard.extras import named_extras
from eggshard.report.tables import over, what
from eggshard.report.words import sentences
from eggshard.steps.nested import Place
from eggshard.tables import size

if TYPE_CHECKING:
    from eggshard.calibration.plan_steps import Measurement
    from eggshard.plan.record import PlanRecord

#: Nanoseconds, in which Perfetto counts, and microseconds, in which trace events do.
_NANO, _MICRO = 1e9, 1e6
#: Any number but 0: all packets of a trace are of one sequence.
_SEQUENCE = 1


class Slice(NamedTuple):
    """A step on a track of a process, from ``start`` on, in seconds. arguments: what is said of it."""

    process: str
    track: str
    name: str
    start: float
    seconds: float
    arguments: Mapping[str, str]


def slices(plan: PlanRecord, measurement: Measurement | None = None) -> list[Slice]:
    """The slices of a plan's trace: as its cost model prices steps, and beside it as they were measured.

    EggshardError where the model's prices are no seconds.
    """
    if plan.unit != SECONDS:
        raise EggshardError(f"{type(plan.cost_model).__name__} prices steps in {plan.unit.name}: there is no timeline; "
                            "plan with a model of seconds, such as 'detected'")
    devices = f"each of {plan.mesh.size} devices"
    found = list(_of_schedule(plan, plan._price, plan.schedule, f"{devices}, predicted"))
    if measurement is not None:
        pricer = Pricer(measurement.as_model(), plan.mesh)
        found += _of_schedule(plan, pricer, timeline(plan.device_program, pricer), f"{devices}, measured step by step")
    return found


def _of_schedule(plan: PlanRecord, pricer: Pricer, schedule: Schedule, process: str) -> Iterator[Slice]:
    place = Place(plan.device_program)
    for number, (start, work) in enumerate(zip(schedule.starts, schedule.work, strict=True)):
        tracks = ([COMPUTE] if work.computing or not work.channels else []) + [f"link {c}" for c in work.channels]
        inner = [(i, n) for i in place.within(number) for n in range(len(i.program.steps))]
        for track in tracks[:1] if inner else tracks:
            yield _slice(place, number, process, track, start, work.seconds)
        yield from _first_iteration(pricer, inner, process, start, start + work.seconds)


def _first_iteration(
    pricer: Pricer, inner: Iterable[tuple[Place, int]], process: str, start: float, end: float
) -> Iterator[Slice]:
    for place, number in inner:
        step = place.program.steps[number]
        seconds = pricer(step.action, *(place.program.types[v] for v in step.operands))
        if start + seconds > end or not seconds:
            continue
        within = [(i, n) for i in place.within(number) for n in range(len(i.program.steps))]
        links = [f"link {c}" for c in pricer.channels(step.action.axes)] if step.action.messages and not within else []
        for track in links or [COMPUTE]:
            yield _slice(place, number, process, track, start, seconds)
        yield from _first_iteration(pricer, within, process, start, start + seconds)
        start += seconds


def _slice(place: Place, number: int, process: str, track: str, start: float, seconds: float) -> Slice:
    step, types = place.program.steps[number], place.program.types
    received = float(place.program.received(step).max()) if step.action.messages else 0.0
    said = {
        "step": place.address_of(number), "over": over(step.action), "received": size(received) if received else "",
        "result per device": ", ".join(str(types[v]) for v in step.results), "why": sentences(step.why),
        "times": str(place.times) if place.outer else "",
    }
    return Slice(process, track, what(step.action), start, seconds, {k: v for k, v in said.items() if v})


def write_trace(plan: PlanRecord, path: str | Path, measurement: Measurement | None = None) -> Path:
    """Write a plan's trace; see `Plan.to_perfetto`."""
    path, found = Path(path), slices(plan, measurement)
    if path.suffix == ".pftrace":
        path.write_bytes(_packets(found))
    elif path.suffixes[-1:] == [".json"]:
        path.write_text(_events(found))
    elif path.suffixes[-2:] == [".json", ".gz"]:
        path.write_bytes(gzip.compress(_events(found).encode(), mtime=0))
    else:
        raise EggshardError(f"{path}: a trace is written as .pftrace, .json or .json.gz")
    return path


def _events(found: Iterable[Slice]) -> str:
    """Trace events, as Chrome defined them and XProf, too, reads them."""
    events: list[dict[str, object]] = []
    numbers: dict[str, int] = {}
    for item in found:
        names = (item.process, f"{item.process}/{item.track}")
        for name, shown, kind in zip(names, (item.process, item.track), ("process_name", "thread_name"), strict=True):
            if name not in numbers:
                numbers[name] = len(numbers) + 1
                events.append({"ph": "M", "pid": numbers[item.process], "tid": numbers[name], "name": kind,
                               "args": {"name": shown}})
        events.append({
            "ph": "X", "pid": numbers[names[0]], "tid": numbers[names[1]], "name": item.name,
            "ts": item.start * _MICRO, "dur": item.seconds * _MICRO, "args": dict(item.arguments)})
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}, separators=(",", ":"))


@named_extras()
def _packets(found: Iterable[Slice]) -> bytes:
    """Perfetto's own format."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent
    from perfetto.trace_builder.proto_builder import TraceProtoBuilder

    builder = TraceProtoBuilder()
    tracks: dict[str, int] = {}

    def track(name: str, shown: str, parent: int = 0) -> int:
        if name not in tracks:
            tracks[name] = len(tracks) + 1
            described = builder.add_packet().track_descriptor
            described.uuid, described.name = tracks[name], shown
            if parent:
                described.parent_uuid = parent
        return tracks[name]

    def event(time: int, place: int, kind: int) -> Any:
        packet = builder.add_packet()
        packet.timestamp, packet.trusted_packet_sequence_id = time, _SEQUENCE
        packet.track_event.type, packet.track_event.track_uuid = kind, place
        return packet.track_event

    by_track: dict[int, list[tuple[int, int, Slice]]] = {}
    for item in found:
        place = track(f"{item.process}/{item.track}", item.track, track(item.process, item.process))
        start, end = round(item.start * _NANO), round((item.start + item.seconds) * _NANO)
        by_track.setdefault(place, []).append((start, -end, item))
    for place, rows in by_track.items():
        open_until: list[int] = []  # of the slices that hold the next one, the innermost last
        for start, negative_end, item in sorted(rows, key=itemgetter(0, 1)):
            while open_until and open_until[-1] <= start:
                event(open_until.pop(), place, TrackEvent.TYPE_SLICE_END)
            begun = event(start, place, TrackEvent.TYPE_SLICE_BEGIN)
            begun.name = item.name
            for key, value in item.arguments.items():
                said = begun.debug_annotations.add()
                said.name, said.string_value = key, value
            open_until.append(-negative_end)
        while open_until:
            event(open_until.pop(), place, TrackEvent.TYPE_SLICE_END)
    packed: bytes = builder.serialize()
    return packed
