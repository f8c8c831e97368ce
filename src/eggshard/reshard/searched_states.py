"""Which states a search for routes among given placements goes by."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations as subsets, islice, product

from eggshard.errors import ShardingError
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement
from eggshard.reshard.states import AxisList, State, all_states, axis_lists, combinations, count_states

#: The most placements over the mesh's axes for a search of all of them (`python -m bench reshard exhaustive`).
ALL_STATES = 320
#: The most placements for a search of those made of pieces of the given placements, where all are too many.
SOME_STATES = 256


def state_of(placement: Placement, active: tuple[int, ...]) -> State:
    """A placement as a state over these dimensions."""
    return State(tuple(placement.dims[i].axes for i in active), placement.partial, placement.monoid)


def searched(
    mesh: Mesh, shape: tuple[int, ...], placements: Sequence[Placement]
) -> tuple[tuple[int, ...], tuple[State, ...]]:
    """The dimensions to shard, and the states over them, to search for routes among these placements.

    All states where these are few enough, so that many tensors and questions share them: first over all axes and all
    dimensions that hold anything to shard, then over those that the placements use. To reduce partial values that some
    axes only repeat, one more dimension is used: sliced over those axes, each device reduces a part, and the parts are
    gathered. No dimension has more shards than elements, unless a placement asks for that.
    """
    used = {i for p in placements for i, d in enumerate(p.dims) if d.axes}
    if shape and any(p.partial for p in placements):
        used.add(shape.index(max(shape)))
    active = tuple(sorted(used))
    everything = tuple(i for i, n in enumerate(shape) if n > 1 or i in used)
    axes_used = {a for p in placements for a in p.used_axes}
    if axes_used - set(mesh.axes):
        raise ShardingError(f"axes {sorted(axes_used - set(mesh.axes))} are not in {mesh}")
    all_axes = tuple(a for a, n in mesh.axes.items() if n > 1 or a in axes_used)
    some_axes = tuple(a for a in mesh.axes if a in axes_used)
    over: dict[str, set[str]] = {}
    for p in placements:
        if p.partial:
            over.setdefault(p.monoid, set()).update(p.partial)
    stated = _partials(mesh, tuple((m, frozenset(over[m])) for m in sorted(over)))
    widest = _partials(mesh, tuple((m, frozenset(all_axes)) for m in sorted(over)))
    for dims, axes, partials in (
        (everything, all_axes, widest), (active, all_axes, widest), (active, all_axes, stated),
        (active, some_axes, stated),
    ):
        if sum(count_states(len(axes) - len(p), len(dims)) for p, _ in partials) <= ALL_STATES:
            most = tuple(max(shape[i], *(mesh.count(p.dims[i].axes) for p in placements)) for i in dims)
            return dims, all_states(tuple(_at_most(mesh, axes, n) for n in most), partials)
    return active, _some_states(frozenset(state_of(p, active) for p in placements), len(active), stated)


@lru_cache(maxsize=4096)
def _at_most(mesh: Mesh, axes: AxisList, shards: int) -> tuple[AxisList, ...]:
    """The ordered lists of distinct axes that make no more than so many shards."""
    return tuple(some for some in axis_lists(axes) if mesh.count(some) <= shards)


@lru_cache(maxsize=256)
def _some_states(
    given: frozenset[State], rank: int, partials: tuple[tuple[AxisList, str], ...]
) -> tuple[State, ...]:
    """States made of the leading axes of what is given: of any of them in each dimension, or of one, or as given."""
    choices = tuple(
        tuple(sorted({s.axes[i][:k] for s in given for k in range(len(s.axes[i]) + 1)}, key=lambda a: (len(a), a)))
        for i in range(rank)
    )
    some = sum(sum(1 for _ in islice(combinations(choices, frozenset(p)), SOME_STATES)) for p, _ in partials)
    if some < SOME_STATES:
        return all_states(choices, partials)
    reduced = {State(s.axes) for s in given}
    below = set(given)
    for s in given:
        heads = [[axes[:k] for k in range(len(axes) + 1)] for axes in s.axes]
        below.update(State(axes, s.partial, s.monoid) for axes in product(*heads))
        below.update(State(axes) for axes in product(*heads))
    return tuple(sorted(below if len(below) <= SOME_STATES else given | reduced))


@lru_cache(maxsize=256)
def _partials(mesh: Mesh, over: tuple[tuple[str, frozenset[str]], ...]) -> tuple[tuple[AxisList, str], ...]:
    """No partial axes, and for each monoid all sets of the axes over which it may be partial."""
    out: list[tuple[AxisList, str]] = [((), "")]
    for monoid, axes in over:
        ordered = [a for a in mesh.axes if a in axes]
        out += [(some, monoid) for k in range(1, len(ordered) + 1) for some in subsets(ordered, k)]
    return tuple(out)
