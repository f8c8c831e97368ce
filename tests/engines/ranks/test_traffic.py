"""The pieces that devices exchange are, all together, what the simulator does with the step."""

from __future__ import annotations

import numpy as np
import pytest
from tests.engines.ranks.actions import ALONE, COMMUNICATING, random_action

from eggshard.engines.ranks.traffic import box_of, traffic_of
from eggshard.engines.ranks.view import DeviceView, perform_alone
from eggshard.errors import LoweringError, MeshError
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType, mlir_dtype
from eggshard.simulate.device_arrays import poisoned, same_bits
from eggshard.simulate.simulator import perform
from eggshard.steps.piece_steps import Exchange, Round
from eggshard.steps.steps import AllGather, KeepFirst


def types_of(arrays):
    return tuple(TensorType(a.shape[1:], mlir_dtype(a.dtype)) for a in arrays)


def moved(mesh, action, operands):
    """The step's results, made from every device's traffic."""
    types = types_of(operands)
    results = []
    for type_ in action.result(mesh, types):
        results.append(np.empty((mesh.size, *type_.shape), operands[0].dtype))
        results[-1].view(np.uint8)[...] = 17
    traffic = [traffic_of(mesh, action, types, device) for device in range(mesh.size)]
    for device, each in enumerate(traffic):
        mine = [result[device, ...] for result in results]
        for result in mine:
            if each.outside == "poison":
                result[...] = poisoned(result.shape, result.dtype)
            elif each.outside == "zeros":
                result[...] = 0
        written = [np.zeros(result.shape, bool) for result in mine]
        for piece in each.received:
            assert not box_of(written[piece.result], piece.target).any(), "two targets meet"
            box_of(written[piece.result], piece.target)[...] = True
            assert box_of(mine[piece.result], piece.target).shape == piece.shape
            box_of(mine[piece.result], piece.target)[...] = box_of(operands[piece.operand][piece.peer], piece.source)
        for reduction in each.reductions:
            parts = [box_of(operands[reduction.operand][m], reduction.kept) for m in reduction.members]
            mine[reduction.result][...] = reduction.combine(parts)
    for a in range(mesh.size):
        for b in range(mesh.size):
            if a != b:
                sent = [p._replace(peer=a) for p in traffic[a].sent if p.peer == b]
                assert sent == [p for p in traffic[b].received if p.peer == a]
        assert set(traffic[a].readers) == {b for b in range(mesh.size) if a in traffic[b].sources}
        assert a not in traffic[a].readers and all(p.peer != a for p in traffic[a].sent)
    return tuple(results)


def assert_pieces_are_the_step(kind, seed):
    mesh, action, operands = random_action(np.random.default_rng([seed, 1]), kind)
    got, want = moved(mesh, action, operands), perform(mesh, action, operands)
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape and g.dtype == w.dtype
        assert same_bits(g, w).all(), (seed, action)


@pytest.mark.parametrize("kind", COMMUNICATING)
def test_the_pieces_of_all_devices_are_the_step(kind):
    for seed in range(12):
        assert_pieces_are_the_step(kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", COMMUNICATING)
def test_the_pieces_of_all_devices_are_the_step_often(kind):
    for seed in range(12, 40):
        assert_pieces_are_the_step(kind, seed)


@pytest.mark.parametrize("kind", ALONE)
def test_a_step_on_one_device_is_that_devices_part_of_the_step(kind):
    for seed in range(25):
        mesh, action, operands = random_action(np.random.default_rng([seed, 2]), kind)
        want = perform(mesh, action, operands)
        for device in range(mesh.size):
            got = perform_alone(DeviceView(mesh, device), action, tuple(x[device] for x in operands))
            for g, w in zip(got, want, strict=True):
                assert np.shape(g) == w.shape[1:] and g.dtype == w.dtype
                assert same_bits(g, w[device]).all(), (seed, action)


def test_a_view_has_the_meshs_counts_and_its_own_positions():
    mesh = Mesh({"x": 2, "y": 3}, device_ids=(4, 1, 0, 5, 2, 3))
    for device in range(mesh.size):
        view = DeviceView(mesh, device)
        assert (view.size, view.count(("x", "y")), view.grid.tolist()) == (1, 6, [[device]])
        assert view.index(("y", "x")).tolist() == [mesh.index(("y", "x"))[device]]
        (group,) = view.groups(("y",)).tolist()
        assert device in group and group in mesh.groups(("y",)).tolist()
        assert view != mesh and view != DeviceView(mesh, (device + 1) % 6) and view == DeviceView(mesh, device)
    with pytest.raises(MeshError, match="no device 6; its devices are 0 to 5"):
        DeviceView(mesh, 6)


def test_only_what_moves_has_traffic():
    mesh, operand = Mesh({"x": 2}), (TensorType((4,), "f32"),)
    with pytest.raises(LoweringError, match="moves no data between devices"):
        traffic_of(mesh, KeepFirst(("x",), "add"), operand, 0)
    outside = Round(((0, 1),), ((3,), (0,)), ((0,), (0,)))
    with pytest.raises(LoweringError, match="lies outside its shard"):
        traffic_of(mesh, Exchange((2,), (4,), (outside,)), operand, 1)


def test_pieces_of_nothing_are_not_sent():
    mesh = Mesh({"x": 2})
    traffic = traffic_of(mesh, AllGather(((0, ("x",)),)), (TensorType((0, 3), "f32"),), 0)
    assert not traffic.received and not traffic.sources and not traffic.readers
