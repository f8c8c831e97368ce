"""Traces: what lies on which track, within what, and that both formats say the same."""

import gzip
import json
from pathlib import Path

import pytest

import eggshard as es
from eggshard.errors import EggshardError
from eggshard.report.trace import slices

pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
jax = pytest.importorskip("jax")


@pytest.fixture(scope="module")
def plan() -> es.Plan:
    """A product, then three steps that look at neighbours."""
    mesh = jax.make_mesh((4,), ("x",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))

    def function(a: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 3, lambda i, v: v + jax.numpy.roll(v, 1, 0), a @ a)

    shape = jax.ShapeDtypeStruct((64, 64), "float32")
    with jax.set_mesh(mesh):
        lowered = jax.jit(function, in_shardings=rows, out_shardings=rows).lower(shape)
    return es.optimize(lowered, cost_model="h100-node")


def test_slices_are_the_schedule(plan: es.Plan) -> None:
    found = slices(plan)
    outer = [s for s in found if "." not in s.arguments["step"]]
    assert {s.arguments["step"] for s in outer} == {str(i) for i in range(len(plan.steps))}
    assert max(s.start + s.seconds for s in outer) == pytest.approx(plan.schedule.makespan)
    assert {s.track for s in found} >= {"compute"} and any(s.track.startswith("link ") for s in found)
    for inner in (s for s in found if "." in s.arguments["step"]):
        (around,) = [s for s in outer if s.arguments["step"] == inner.arguments["step"].partition(".")[0]]
        assert around.start <= inner.start and inner.start + inner.seconds <= around.start + around.seconds * (1 + 1e-9)


def test_both_formats_say_the_same(plan: es.Plan, tmp_path: Path) -> None:
    text, packed, raw = (plan.to_perfetto(tmp_path / f"x.{end}") for end in ("json", "json.gz", "pftrace"))
    assert gzip.decompress(packed.read_bytes()).decode() == text.read_text()
    events = [e for e in json.loads(text.read_text())["traceEvents"] if e["ph"] == "X"]
    trace = pb2.Trace.FromString(raw.read_bytes())
    begun: list[str] = []
    depth: dict[int, list[int]] = {}
    for packet in trace.packet:
        event = packet.track_event
        if not packet.HasField("track_event"):
            continue
        if event.type == pb2.TrackEvent.TYPE_SLICE_BEGIN:
            begun.append(event.name)
            depth.setdefault(event.track_uuid, []).append(packet.timestamp)
        else:
            assert depth[event.track_uuid].pop() <= packet.timestamp
    assert sorted(begun) == sorted(e["name"] for e in events) and not any(depth.values())


def test_what_makes_no_trace_is_refused(plan: es.Plan, tmp_path: Path) -> None:
    with pytest.raises(EggshardError, match=r"written as .pftrace, .json or .json.gz"):
        plan.to_perfetto(tmp_path / "x.trace")
    counted = es.optimize(plan.program, cost_model="wire-bytes")
    with pytest.raises(EggshardError, match="WireBytes prices steps in bytes"):
        counted.to_perfetto(tmp_path / "x.json")
