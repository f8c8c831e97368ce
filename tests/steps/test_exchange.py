"""The reshard by pieces: correct between any two placements, no byte too many, no round too many."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tests.reshard.reshards import all_placements, between, check_steps, placed

from eggshard.costmodel.pricing import step_info
from eggshard.placement.edge_colouring import colour_edges
from eggshard.program.mesh import Mesh
from eggshard.program.placement import missing_elements
from eggshard.program.types import TensorType
from eggshard.reshard.states import StateSpace, all_states, axis_lists
from eggshard.steps.exchange import exchange

GRID = Mesh({"x": 4, "y": 2})
SHUFFLED = Mesh({"x": 4, "y": 2}, device_ids=(3, 1, 0, 2, 7, 6, 4, 5))
SIX = Mesh({"x": 2, "y": 3})
NINETY_SIX = Mesh({"x": 6, "y": 4, "z": 4})
TWELVE = Mesh({"x": 2, "y": 3, "z": 2})


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=60))
def test_colours_are_proper_and_as_few_as_the_degree(edges):
    senders, receivers = [s for s, _ in edges], [r for _, r in edges]
    colours = colour_edges(senders, receivers, 6).tolist()
    degree = max([*Counter(senders).values(), *Counter(receivers).values()], default=0)
    assert len({*zip(senders, colours, strict=True)}) == len({*zip(receivers, colours, strict=True)}) == len(edges)
    assert not colours or 0 <= min(colours) <= max(colours) == degree - 1


def counted(mesh, action, itemsize):
    """Bytes each device receives, counted piece by piece; no device sends or receives twice in a round."""
    out = np.zeros(mesh.size)
    for pieces in action.tables(mesh).sent:
        pairs = pieces.pairs.tolist()
        assert len({s for s, _ in pairs}) == len({t for _, t in pairs}) == len(pairs)
        assert pairs == sorted(pairs)
        for s, t in pairs:
            assert s != t
            out[t] += itemsize * np.prod(action.piece)
    return out


@pytest.mark.parametrize(
    ("mesh", "shape", "share"),
    [(GRID, (16, 8), 1.0), (SHUFFLED, (8, 8), 1.0), (SIX, (10, 7), 1.0), (SIX, (36, 6), 1.0), (TWELVE, (72, 24), 0.05),
     (NINETY_SIX, (100, 26), 0.05)],
)
def test_exchange_is_correct_and_as_outlined(mesh, shape, share):
    rng = np.random.default_rng(0)
    partials = (((), ""), (("x",), "add"))
    states = all_states((axis_lists(tuple(mesh.axes)),) * len(shape), partials)
    space = StateSpace(mesh, shape, states, max_rounds=64)
    placements = all_placements(mesh, shape, partials)
    type_ = TensorType(shape, "f32")
    even = all(n % mesh.size == 0 for n in shape)
    outlined = 0
    for i, j in itertools.permutations(range(len(states)), 2):
        number = space.exchange_class[i, j]
        if number < 0 or rng.random() > share:
            continue
        outlined += 1
        source, target, outline = placements[i], placements[j], space.exchange(i, j)
        action = between(mesh, shape, source, target)
        operands = (source.local_type(type_),)
        received = action.received(mesh, operands)
        np.testing.assert_array_equal(received, counted(mesh, action, 4))
        missing = 4 * missing_elements(mesh, shape, source, target)
        assert (received == missing).all() if even else (received >= missing).all()
        # The space counts what devices do, and one class has one price: its representative speaks for all.
        assert action == exchange(mesh, shape, source, target, outline.over, outline.cells, outline.rounds)
        assert action.busiest(mesh, operands) == received.max()
        assert np.prod(action.piece) == outline.cell
        first = space.exchanges[number]
        assert (outline.cell * outline.cells, outline.rounds) == (first.cell * first.cells, first.rounds)
        # Listed device by device it is the same.
        listed = action.listed(mesh)
        np.testing.assert_array_equal(listed.received(mesh, operands), received)
        assert step_info(mesh, listed, operands) == step_info(mesh, action, operands)
        for a, b in zip(itertools.chain(*listed.tables(mesh)), itertools.chain(*action.tables(mesh)), strict=True):
            assert all((x == y).all() for x, y in zip(a, b, strict=True))
        check_steps(mesh, type_, source, target, ((action, target),), rng)
    assert outlined > 20


def test_transposed_split_moves_half_shards():
    shape = (1024, 1024)
    action = between(GRID, shape, placed(GRID, shape, "x|y"), placed(GRID, shape, "y|x"))
    assert action.piece == (256, 256)
    assert action.messages == 2
    assert action.received(GRID, (TensorType((256, 512), "f32"),)).max() == 512 * 1024


def test_axes_that_keep_their_place_are_not_crossed():
    shape = (24, 24)
    action = between(TWELVE, shape, placed(TWELVE, shape, "xz|y"), placed(TWELVE, shape, "xy|z"))
    assert action.over == ("y", "z")
    for pieces in action.tables(TWELVE).sent:
        for s, t in pieces.pairs:
            assert TWELVE.coordinates["x"][s] == TWELVE.coordinates["x"][t]


def test_nothing_to_move_is_nothing_to_send():
    shape = (6, 4)
    action = between(GRID, shape, placed(GRID, shape, "|"), placed(GRID, shape, "xy|"))
    assert action.messages == 0
    empty = (0, 4)
    action = between(GRID, empty, placed(GRID, empty, "x|"), placed(GRID, empty, "y|"))
    assert action.messages == 0 and action.shape == (0, 4)
