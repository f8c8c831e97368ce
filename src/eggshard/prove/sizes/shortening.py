"""Ops and steps whose positions along some dimensions are others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from eggshard.placement.slabs import Slab
from eggshard.program.attributes import Attributes
from eggshard.program.placement import Dim
from eggshard.prove.sizes.classes import Place
from eggshard.steps.steps import Action, Mask
from eggshard.steps.window_steps import BoxSelect, Crop, EdgeFill, HaloExchange, JointExchange

#: What a position along an operand's or result's dimension becomes.
Moved = Callable[[Place, int], int]
#: The attributes of ops that state a position in each dimension of their first operand.
_POSITIONS = {
    "pad": ("edge_padding_low", "edge_padding_high"), "slice": ("start_indices", "limit_indices"),
    "update_slice": ("start_indices",),
}  # fmt: skip


def shortened_attributes(name: str, attributes: Attributes, moved: Moved) -> Attributes:
    """An op's attributes at other lengths."""
    if name == "rotate":
        return attributes.updated(amount=moved((0, attributes["dimension"]), attributes["amount"]))
    return attributes.updated(**{
        key: tuple(moved((0, d), x) for d, x in enumerate(attributes[key])) for key in _POSITIONS.get(name, ())
    })


def shortened_action(action: Action, moved: Moved) -> Action:
    """A step that states positions, at other lengths."""
    match action:
        case Crop():
            return _crop(action, partial(moved, (0, action.dim)))
        case HaloExchange():
            return _halo(action, partial(moved, (0, action.dim)))
        case JointExchange():
            along = [partial(moved, (k, part.dim)) for k, part in enumerate(action.parts)]
            return replace(
                action, parts=tuple(_halo(part, at) for part, at in zip(action.parts, along, strict=True)),
                shared=tuple(
                    tuple(tuple((i, _slab(slab, along[i])) for i, slab in load) for load in loads)
                    for loads in action.shared
                ),
            )
        case EdgeFill():
            at = partial(moved, (0, action.dim))
            return replace(action, window=_window(action.window, at), size=at(action.size))
        case BoxSelect():
            return replace(action, box=tuple(
                (dim, _window(window, partial(moved, (0, dim))), moved((0, dim), start), moved((0, dim), stop))
                for dim, window, start, stop in action.box
            ))
        case Mask():
            return replace(action, size=moved((0, action.dim), action.size))
    return action


def _crop(action: Crop, at: Callable[[int], int]) -> Crop:
    return replace(action, new=at(action.new), offsets=tuple(map(at, action.offsets)))


def _halo(action: HaloExchange, at: Callable[[int], int]) -> HaloExchange:
    rounds = tuple(_slab(slab, at) for slab in action.rounds)
    return replace(action, new=at(action.new), offsets=tuple(map(at, action.offsets)), rounds=rounds)


def _slab(slab: Slab, at: Callable[[int], int]) -> Slab:
    return slab._replace(
        width=at(slab.width), source_starts=tuple(map(at, slab.source_starts)),
        target_starts=tuple(map(at, slab.target_starts)),
    )


def _window(window: Dim, at: Callable[[int], int]) -> Dim:
    return window._replace(tile=at(window.tile), low=at(window.low), high=at(window.high))
