"""Which slabs share a collective-permute: every message once, no device twice in a permute, no byte too many."""

from collections import Counter

import numpy as np
import pytest

from eggshard.costmodel import AlphaBeta, Messages, WireBytes
from eggshard.costmodel.pricing import Pricer, step_info
from eggshard.errors import LoweringError
from eggshard.placement.slabs import Slab
from eggshard.placement.windows import slab_exchange
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Dim
from eggshard.program.types import TensorType
from eggshard.spmd.sharing import can_share, cheapest_joint
from eggshard.steps.window_steps import HaloExchange, JointExchange, moves_of, pairs_of

MESH = Mesh({"x": 8})
ROWS = TensorType((16, 3), "f32")


def window(tile, low=0, high=0, n=128, wrapped=False):
    """From tiles of a dimension of n over x."""
    specified = (low, 8 * tile + high) if wrapped else None
    source, target = Dim(("x",), n // 8), Dim(("x",), tile, low, high, specified)
    found = slab_exchange(n, 8, source, target)
    return HaloExchange(0, ("x",), target.size, found.offsets, found.rounds)


def degree(parts, types):
    """Bytes that the busiest device sends, or receives."""
    ends = Counter()
    for i, part in enumerate(parts):
        for slab in part.rounds:
            size = types[i].with_shape((slab.width, *types[i].shape[1:])).bytes
            for sender, receiver in slab.pairs:
                if sender != receiver:
                    ends["from", sender] += size
                    ends["to", receiver] += size
    return max(ends.values(), default=0)


def check(parts, types, model=None):
    """The joint exchange, after all that must hold of it."""
    price = Pricer(model or WireBytes(), MESH)
    action = cheapest_joint(MESH, parts, types, price)
    apart = JointExchange(tuple(parts))
    assert price(action, *types) <= price(apart, *types)
    sent = Counter()
    for loads in action.travelling:
        pairs = pairs_of(loads)
        assert len({s for s, _ in pairs}) == len({r for _, r in pairs}) == len(pairs)
        for load in loads:
            assert len({slab.pairs for _, slab in load}) == 1
            sent.update(m for i, slab in load for m in moves_of(i, slab))
    stays = Counter((i, s) for i, slab in action.staying for s, r in slab.pairs)
    wanted = Counter(m for i, part in enumerate(parts) for slab in part.rounds for m in moves_of(i, slab))
    assert sent == wanted and all(n >= 1 for n in stays.values())
    assert degree(parts, types) <= action.serial_bytes(MESH, types)
    assert model is not None or action.serial_bytes(MESH, types) <= apart.serial_bytes(MESH, types)
    assert (action.received(MESH, types) <= action.serial_bytes(MESH, types)).all()
    return action


HALVES = window(8), window(8, 64, 64)
THIRDS = tuple(window(16, 128 * k, 128 * k, 384) for k in range(3))


@pytest.mark.parametrize(
    ("parts", "permutes", "rows", "apart"), [(HALVES, 2, 16, 4), (THIRDS, 3, 48, 8), (HALVES[:1] * 2, 2, 32, 2)],
    ids=["halves", "thirds", "one way"],
)
def test_no_more_permutes_than_the_busiest_device_has_messages(parts, permutes, rows, apart):
    types = [TensorType((48 if parts is THIRDS else 16, 3), "f32")] * len(parts)
    action = check(parts, types)
    assert JointExchange(parts).messages == apart
    assert action.serial_bytes(MESH, tuple(types)) == 12 * rows == degree(parts, types)
    assert action.messages == permutes
    # Where messages are all that counts there are no more of them.
    assert check(parts, types, Messages()).messages <= min(action.messages, apart)


def test_halos_have_nothing_to_share():
    parts = window(16, -1, 1), window(16, -2, 1, wrapped=True)
    types = [ROWS, ROWS]
    assert not can_share(MESH, parts[1:], types[1:]) and not can_share(MESH, parts[:1], types[:1])
    assert check(parts[1:], types[1:]) == JointExchange(parts[1:])


def test_devices_that_send_neighbours_and_devices_that_do_not():
    """A slab from one end to the other goes with the halo of a line, whose ends have nothing to send there."""
    line = window(16, -1, 0)
    back = HaloExchange(0, ("x",), 17, (0,) * 8, (Slab(((7, 0),), 1, (15,) * 8, (16,) * 8),))
    action = check([line, back], [ROWS, ROWS])
    assert action.messages == 1 and action.serial_bytes(MESH, (ROWS, ROWS)) == 12


def test_the_model_decides():
    """Every load of a shared permute is made by all devices, which may cost more than it saves."""

    class MemoryOnly:
        def seconds(self, step):
            return 1e-9 * step.memory_bytes

    assert check(HALVES, [ROWS, ROWS], MemoryOnly()) == JointExchange(HALVES)
    shared = check(HALVES, [ROWS, ROWS], AlphaBeta())
    assert shared.shared
    types = (ROWS, ROWS)
    both, alone = (step_info(MESH, action, types) for action in (shared, JointExchange(HALVES)))
    assert (both.messages, both.wire_bytes) == (2, 2 * 8 * 12) and alone.wire_bytes == 4 * 8 * 12
    # Two permutes of two loads each of 8 rows, copied once on either side.
    assert both.memory_bytes - alone.memory_bytes == 2 * 2 * 4 * 8 * 12


@pytest.mark.parametrize("seed", range(60))
def test_random_exchanges(seed):
    rng = np.random.default_rng(seed)
    parts, types = [], []
    for _ in range(rng.integers(2, 5)):
        n = 8 * int(rng.integers(2, 7))
        tile = int(rng.integers(1, n // 8 + 1))
        low = int(rng.integers(-n // 4, n - tile))
        wrapped = (low, 8 * tile + low + 2) if rng.random() < 0.3 else None
        found = slab_exchange(n, 8, Dim(("x",), n // 8), Dim(("x",), tile, low, low + int(rng.integers(0, 3)), wrapped))
        if found is not None:
            parts.append(HaloExchange(0, ("x",), Dim(("x",), tile, low, low).size + 2, found.offsets, found.rounds))
            types.append(TensorType((n // 8, int(rng.integers(1, 4))), "f32"))
    for model in (WireBytes(), AlphaBeta(), Messages()):
        if parts:
            check(parts, types, model)


def test_loads_that_are_not_what_the_parts_send():
    good = cheapest_joint(MESH, HALVES, [ROWS, ROWS], Pricer(WireBytes(), MESH))
    assert isinstance(good, JointExchange) and JointExchange(HALVES, good.shared) == good
    with pytest.raises(LoweringError, match="not what its parts send"):
        JointExchange(HALVES, good.shared[:1])
    with pytest.raises(LoweringError, match="two loads of one collective-permute"):
        JointExchange(HALVES, (tuple(load for loads in good.shared for load in loads),))


def test_a_value_s_own_slabs_share_where_they_go_between_different_devices():
    """Of two devices each sends the other one side of a halo, of different widths; of eight each sends both sides."""
    two = Mesh({"x": 2})
    found = slab_exchange(32, 2, Dim(("x",), 16), Dim(("x",), 16, -1, 3))
    action = HaloExchange(0, ("x",), 20, found.offsets, found.rounds)
    assert len(action.rounds) == 2 and action.messages == 1 and action.serial_bytes(two, (ROWS,)) == 3 * 12
    assert action.received(two, (ROWS,)).tolist() == [36, 36] and action.hops == 1
    assert window(16, -1, 3).messages == 2 and window(16, -1, 3).serial_bytes(MESH, (ROWS,)) == 4 * 12
