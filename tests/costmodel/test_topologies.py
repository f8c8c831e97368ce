"""Fabrics and algorithms: closed forms, shapes of slices, where groups lie."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from eggshard.costmodel import FatTree, FullMesh, Level, Machine, Protocol, Ring, StepInfo, Switch, Torus, preset
from eggshard.costmodel.compute import Compute
from eggshard.costmodel.machines.algorithms import Line, Span, all_reduces, all_to_alls, gathers, terms
from eggshard.costmodel.machines.topologies import FABRICS
from eggshard.errors import CostModelError
from eggshard.program.mesh import Mesh

RATE, HOP = 1e9, 1e-6
COMPUTE = Compute({"default": 1e12}, 1e11)


def machine(*levels: Level, **options: object) -> Machine:
    return Machine("test", levels, COMPUTE, **options)


def named(found, name: str):
    return next(t for t in found if t.algorithm == name)


def step(kind: str, mesh: Mesh, axes: tuple[str, ...], size: float, **figures: float) -> StepInfo:
    """A collective of a group whose whole array has so many bytes."""
    n = mesh.count(axes)
    wire = size * (n - 1) / n * (2 if kind == "all-reduce" else 1) if kind.startswith(("all", "reduce")) else size
    return StepInfo(kind, mesh, axes=axes, group=n, wire_bytes=wire, messages=1, **figures)


@pytest.mark.parametrize("n", [2, 3, 8])
def test_a_switch_has_rings_trees_and_its_own_arithmetic(n: int) -> None:
    span = Span(Switch(RATE, HOP, reduces=True), n)
    ring = named(gathers(span), "ring")
    assert (ring.latency, ring.per_byte) == pytest.approx(((n - 1) * HOP, (n - 1) / n / RATE))
    assert named(gathers(span), "recursive-halving").latency == pytest.approx(math.ceil(math.log2(n)) * HOP)
    assert named(all_reduces(span), "ring").per_byte == pytest.approx(2 * (n - 1) / n / RATE)
    assert named(all_reduces(span), "tree").per_byte == pytest.approx(2 / RATE)
    assert named(all_reduces(span), "in-switch").per_byte == pytest.approx((n + 1) / n / RATE)
    assert named(all_to_alls(span), "direct").per_byte == pytest.approx((n - 1) / n / RATE)


def test_closed_rings_send_both_ways_and_open_ones_do_not() -> None:
    """Scaling-book, sharding chapter: V / W both ways on a ring, half of that bandwidth on a line."""
    ring, line = (Span(Ring(RATE, HOP), 16, (Line(16, closed=closed),)) for closed in (True, False))
    assert named(gathers(ring), "bidirectional-ring").per_byte == pytest.approx(15 / 16 / (2 * RATE))
    assert named(gathers(line), "bidirectional-ring").per_byte == pytest.approx(15 / 16 / RATE)
    assert named(gathers(ring), "bidirectional-ring").latency == pytest.approx(8 * HOP)
    assert named(gathers(line), "bidirectional-ring").latency == pytest.approx(15 * HOP)
    assert not any(t.algorithm == "ring" for t in gathers(line))
    gathered, exchanged = (named(f(ring), "bidirectional-ring").per_byte for f in (gathers, all_to_alls))
    whole = 16  # times the bytes of one device, which an all-to-all counts
    assert exchanged == pytest.approx(whole * gathered / 4 * 16 / 15)


def test_several_axes_of_a_torus_are_used_at_once() -> None:
    span = Span(Torus(RATE, HOP), 256, (Line(16, closed=True), Line(16, closed=True)))
    assert named(gathers(span), "multi-axis").per_byte == pytest.approx(255 / 256 / (4 * RATE))
    assert named(gathers(span), "multi-axis").per_byte < named(gathers(span), "bidirectional-ring").per_byte
    assert named(gathers(span), "multi-axis").latency == pytest.approx(16 * HOP)


def test_a_full_mesh_has_one_link_per_pair() -> None:
    """MI300X: the bus bandwidth of 8 is seven links', that of 2 one link's."""
    for n in (2, 8):
        gathered = named(gathers(Span(FullMesh(RATE, HOP), n)), "direct")
        assert (n - 1) / n / gathered.per_byte == pytest.approx((n - 1) * RATE)


def test_an_oversubscribed_fat_tree_is_slower_for_all_pairs_than_for_neighbours() -> None:
    tree = FatTree(RATE, HOP, leaf=8, oversubscription=4.0)
    assert tree.pairs(8) == tree.neighbours(8) == 1.0
    assert tree.neighbours(64) == 1.0
    assert tree.pairs(64) == pytest.approx(63 / 56 / 4)


def test_hierarchies_see_the_bytes_that_reach_them() -> None:
    inner, outer = Span(Switch(8 * RATE, HOP), 8), Span(Switch(RATE, HOP), 4)
    gather = min(terms("all-gather", (inner, outer)), key=lambda t: t.per_byte)
    assert gather.per_byte == pytest.approx(max(7 / 8 / (8 * RATE), 3 / 4 / 8 / RATE))
    exchange = min(terms("all-to-all", (inner, outer)), key=lambda t: t.per_byte)
    assert exchange.per_byte == pytest.approx(24 / 32 / RATE)


def test_devices_of_a_host_share_its_card() -> None:
    """Four hosts of two devices: what leaves a host goes through one port."""
    mesh, size = Mesh({"host": 4, "device": 2}), 1e6
    apart, shared = (machine(Level("host", Switch(1e3 * RATE, HOP), 2, ("ring", "direct")),
                             Level("net", Switch(RATE, HOP), algorithms=("ring", "direct"), shared=s))
                     for s in (False, True))

    def slower(kind: str, *axes: str) -> float:
        found = step(kind, mesh, axes, size)
        return shared.seconds(found) / apart.seconds(found)

    assert slower("collective-permute", "host") == pytest.approx(2, rel=0.01)
    assert slower("all-gather", "host") == pytest.approx(2, rel=0.01)
    assert slower("all-to-all", "host", "device") == pytest.approx(2, rel=0.01)
    assert slower("all-gather", "device") == 1
    # Of the group of all devices one of a host sends to the next one, of the groups across hosts each.
    assert slower("halo-exchange", "host", "device") == 1
    assert slower("halo-exchange", "host") == pytest.approx(2, rel=0.01)


@pytest.mark.parametrize(
    ("units", "mesh", "shape"),
    [(8, {"x": 4, "y": 2}, (4, 2)), (8, {"x": 8}, (2, 4)), (256, {"x": 16, "y": 16}, (16, 16)), (1, {"x": 1}, (1, 1)),
     (64, {"x": 2, "y": 32}, (8, 8))],
)
def test_slices_are_cut_as_cubic_as_can_be(units: int, mesh: dict[str, int], shape: tuple[int, ...]) -> None:
    assert Torus(RATE, HOP, longest=16).shape(units, tuple(mesh.values())) == shape


def test_only_full_axes_of_a_v5e_wrap() -> None:
    v5e = preset("tpu-v5e")
    mesh = Mesh({"x": 16, "y": 16})
    half = Mesh({"x": 8, "y": 8})
    size = 1e8
    closed, opened = (v5e.seconds(step("all-gather", m, ("x",), size)) for m in (mesh, half))
    assert opened / closed == pytest.approx((7 / 8) / (15 / 16 / 2), rel=0.02)


def test_sub_axes_and_device_order_count() -> None:
    """The major part of an axis has hops over its minor part, whose groups share the links."""
    ring = machine(Level("ring", Ring(RATE, HOP)))
    parts = Mesh({"x:(1)4": 4, "x:(4)4": 4})
    minor, major = (ring.seconds(step("all-gather", parts, (a,), 1e8)) for a in ("x:(4)4", "x:(1)4"))
    assert minor == pytest.approx(3 * HOP + 0.75e8 / RATE)
    assert major == pytest.approx(2 * 4 * HOP + 0.75e8 * 4 / (2 * RATE))
    swapped = Mesh({"x": 4, "y": 4}, [4 * (i % 4) + i // 4 for i in range(16)])
    plain = Mesh({"x": 4, "y": 4})
    assert ring.seconds(step("all-gather", swapped, ("x",), 1e8)) == ring.seconds(
        step("all-gather", plain, ("y",), 1e8))


def test_axes_lie_innermost_from_the_minor_most_or_as_mapped() -> None:
    two = machine(Level("node", Switch(10 * RATE, HOP), 4), Level("network", Switch(RATE, HOP)))
    mesh = Mesh({"data": 4, "model": 4})
    inside, across = (two.seconds(step("all-gather", mesh, (a,), 1e9)) for a in ("model", "data"))
    assert across / inside == pytest.approx(10, rel=0.01)
    assert two.channels(("model",), mesh) == ("node",) and two.channels(("data",), mesh) == ("network",)
    assert two.channels(("data", "model"), mesh) == ("node", "network")
    other = two.placed(data="node", model="network")
    assert other.seconds(step("all-gather", mesh, ("data",), 1e9)) == inside
    assert other.channels(("data",), mesh) == ("node",)


def test_axes_of_a_torus_have_links_of_their_own() -> None:
    v5e, mesh = preset("tpu-v5e"), Mesh({"x": 4, "y": 4})
    assert v5e.channels(("x",), mesh) == ("slice.0",) and v5e.channels(("y",), mesh) == ("slice.1",)
    parts = Mesh({"x:(1)2": 2, "x:(2)2": 2, "y": 4})
    assert v5e.channels(("x:(1)2",), parts) == v5e.channels(("x:(2)2",), parts) == ("slice.0",)


def test_a_mesh_too_large_for_the_machine_is_refused() -> None:
    with pytest.raises(CostModelError, match="16 devices.*hold 8"):
        preset("h100-node").seconds(step("all-reduce", Mesh({"x": 16}), ("x",), 1e6))


def test_a_message_has_one_channel_up_to_a_size_and_then_as_many_as_the_links_carry() -> None:
    one = machine(Level("node", Switch(RATE, HOP), 8), Level("network", Switch(RATE / 50, HOP)))
    few = replace(one, protocols=(Protocol(channel=RATE / 10, part=1e6),))
    inside, across = Mesh({"rest": 2, "x": 8}), Mesh({"x": 2, "rest": 8})

    def over(model: Machine, mesh: Mesh, size: float, kind: str = "collective-permute", messages: int = 1) -> float:
        return model.seconds(replace(step(kind, mesh, ("x",), size), messages=messages)) - messages * HOP

    for kind in ("collective-permute", "exchange", "halo-exchange"):
        for size, at_rate in ((1e3, 1e4), (1e6, 1e7), (3e6, 1e7), (1e7, 1e7), (1e9, 1e9)):
            assert over(few, inside, size, kind) == pytest.approx(at_rate / RATE)
            assert over(few, across, size, kind) == pytest.approx(over(one, across, size, kind))
    assert over(few, inside, 4e6, messages=4) == pytest.approx(4 * over(few, inside, 1e6))
    gathers = [few.seconds(step("all-gather", inside, ("x",), 8 / 7 * size)) for size in (1e6, 2e6, 1e8)]
    assert gathers == pytest.approx([1e7 / RATE, 1e7 / RATE, 1e8 / RATE], rel=1e-3)


def test_messages_at_once_share_a_latency() -> None:
    for at_once, latencies in ((1, 7), (2, 3.5), (7, 1), (16, 1)):
        many = Machine("m", (Level("a", Switch(RATE, HOP), algorithms=("direct",)),), Compute({"default": 1.0}, 1.0),
                       (Protocol(at_once=at_once),))
        assert many.seconds(step("all-to-all", Mesh({"x": 8}), ("x",), 0.0)) == pytest.approx(latencies * HOP)


@pytest.mark.parametrize(
    ("make", "message"),
    [(lambda: Switch(0.0, 0.0), "bandwidth"), (lambda: Ring(1.0, -1.0), "latency"),
     (lambda: Switch(1.0, 0.0, efficiency=2.0), "efficiency"),
     (lambda: FatTree(1.0, 0.0, oversubscription=0.5), "oversubscription"),
     (lambda: machine(), "levels"), (lambda: machine(Level("a", Switch(1, 0)), Level("b", Switch(1, 0))), "'a'"),
     (lambda: Protocol(launch=-1.0), "launch"), (lambda: Protocol(channel=0.0), "channel"),
     (lambda: Protocol(part=-1.0), "part"), (lambda: Protocol(at_once=0), "at_once"),
     (lambda: Compute({"f32": 1.0}, 1.0), "default"),
     (lambda: machine(Level("a", Switch(1, 0)), axes={"x": "b"}), "'b'")],
)
def test_impossible_machines_are_refused(make, message: str) -> None:
    with pytest.raises(CostModelError, match=message):
        make()


FABRIC = st.sampled_from([
    Ring(RATE, HOP), Torus(RATE, HOP, wrap=4), Torus(RATE, HOP, dims=3, wrap=0), Switch(RATE, HOP),
    Switch(RATE, HOP, reduces=True, reduction_efficiency=0.8), FullMesh(RATE / 8, HOP),
    FatTree(RATE, HOP, leaf=4, oversubscription=2.0),
])
MESHES = st.sampled_from([Mesh({"x": 4, "y": 2}), Mesh({"x": 2, "y": 2, "z": 2}), Mesh({"x": 3, "y": 4}),
                          Mesh({"x:(1)2": 2, "x:(2)4": 4, "y": 2})])
KINDS = st.sampled_from(["all-gather", "reduce-scatter", "all-reduce", "all-to-all", "collective-permute"])


@st.composite
def placed(draw) -> tuple[Machine, Mesh, tuple[str, ...]]:
    fabric, mesh = draw(FABRIC), draw(MESHES)
    levels = [Level("inner", fabric)]
    if draw(st.booleans()):
        levels = [Level("inner", fabric, draw(st.sampled_from([2, 4]))), Level("outer", draw(FABRIC))]
    axes = tuple(draw(st.lists(st.sampled_from(list(mesh.axes)), min_size=1, unique=True)))
    slow = draw(st.floats(0.01, 10.0)) * RATE
    few = Protocol("c", 1e-6, channel=slow, part=draw(st.floats(1.0, 1e9)), at_once=draw(st.integers(1, 8)))
    protocols = draw(st.sampled_from([(Protocol(launch=1e-6), Protocol("b", 1e-5, 0.5, 2.0)), (few,),
                                      (few, Protocol("b", 1e-5, 0.5, 2.0))]))
    return machine(*levels, protocols=protocols), mesh, axes


@given(placed(), KINDS, st.floats(1.0, 1e10), st.floats(1.0, 100.0))
def test_more_bytes_never_cost_less_and_the_same_twice_the_same(found, kind: str, size: float, more: float) -> None:
    model, mesh, axes = found
    one, other = (model.seconds(step(kind, mesh, axes, s)) for s in (size, size * more))
    assert 0 < one <= other * (1 + 1e-12)
    assert model.seconds(step(kind, mesh, axes, size)) == one


@given(placed(), st.floats(1.0, 1e10))
def test_an_all_reduce_is_not_dearer_than_its_halves(found, size: float) -> None:
    model, mesh, axes = found
    whole, *halves = (
        model.seconds(step(kind, mesh, axes, size)) for kind in ("all-reduce", "reduce-scatter", "all-gather"))
    assert whole <= sum(halves) * (1 + 1e-9)


@given(FABRIC, st.sampled_from(["x", "y"]), KINDS)
def test_a_group_of_one_costs_nothing(fabric, axis: str, kind: str) -> None:
    mesh = Mesh({"x": 1, "y": 1, "z": 4})
    assert machine(Level("all", fabric)).seconds(
        StepInfo(kind, mesh, axes=(axis,), group=1, wire_bytes=0.0, messages=1)) == 0


@given(st.sampled_from([Switch(RATE, HOP), FullMesh(RATE, HOP), FatTree(RATE, HOP)]), KINDS, st.floats(1.0, 1e9))
def test_groups_that_are_alike_cost_the_same(fabric, kind: str, size: float) -> None:
    """On fabrics without neighbours it is the number of devices that counts."""
    model, mesh = machine(Level("all", fabric)), Mesh({"x": 2, "y": 2, "z": 2})
    assert len({model.seconds(step(kind, mesh, (a,), size)) for a in mesh.axes}) == 1


def test_every_fabric_has_a_name_for_files() -> None:
    assert set(FABRICS) == {"ring", "torus", "switch", "full-mesh", "fat-tree"}
