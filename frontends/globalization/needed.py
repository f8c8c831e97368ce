"""Which elements of local tensors anything depends on, one dimension independently of the others.

Code that computes on tensors with halos leaves elements of no meaning at their ends, and cuts them off later. Those are
different on devices that overlap, and belong to no global tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from eggshard.ops import registry
from eggshard.ops.elementwise.pointwise import Pointwise
from eggshard.ops.neighbours.halo import AlongDimension
from eggshard.program.attributes import Attributes
from eggshard.program.program import Op, Region
from eggshard.program.types import TensorType

#: Per dimension whether elements are needed; None where the whole value is not.
Needed = tuple[np.ndarray, ...] | None


def everything(type_: TensorType) -> tuple[np.ndarray, ...]:
    """All elements of a tensor."""
    return tuple(np.ones(n, bool) for n in type_.shape)


def needed(region: Region, outputs: Sequence[Needed]) -> list[Needed]:
    """What is needed of each value of a region of whose outputs this is needed."""
    found: list[Needed] = [None] * len(region.types)
    for v, own in zip(region.outputs, outputs, strict=True):
        found[v] = _either(found[v], own)
    for op in reversed(region.ops):
        results = [found[v] for v in op.results]
        if all(own is None for own in results) and registry.is_pure(op.name, op.regions):
            continue
        types = [region.types[v] for v in op.operands]
        for v, own in zip(op.operands, _of_operands(op, types, results), strict=True):
            found[v] = _either(found[v], own)
    return found


def in_loop(
    op: Op, results: Sequence[Needed], types: Sequence[TensorType]
) -> list[tuple[np.ndarray, ...]]:
    """What is needed of the values that a loop carries, before every iteration and after the last one; everything of
    those of which nothing is."""
    condition, body = op.regions
    found = list(results)
    while True:
        before = needed(body, found)
        tested = needed(condition, [()])
        more = [_either(_either(was, before[v]), tested[w])
                for was, v, w in zip(found, body.inputs, condition.inputs, strict=True)]
        if all(_same(a, b) for a, b in zip(found, more, strict=True)):
            return [everything(t) if own is None else own for own, t in zip(found, types, strict=True)]
        found = more


def _of_operands(op: Op, types: Sequence[TensorType], results: Sequence[Needed]) -> Sequence[Needed]:
    if op.name == "while":
        return in_loop(op, results, types)
    (own,) = results if len(results) == 1 else (None,)
    definition = registry.get(op.name)
    if own is not None and isinstance(definition, Pointwise):
        return [own if t.rank == len(own) else () for t in types]
    if own is not None and isinstance(definition, AlongDimension):
        d, n = op.attributes["dimension"], types[0].shape[op.attributes["dimension"]]
        mask = np.zeros(n, bool)
        mask[definition.indices(op.attributes, n)[own[d]]] = True
        return [(*own[:d], mask, *own[d + 1 :])]
    if own is not None and op.name in _MOVED:
        return _MOVED[op.name](op.attributes, types, own)
    return [everything(t) for t in types]


def _sliced(attributes: Attributes, types: Sequence[TensorType], own: tuple[np.ndarray, ...]) -> list[Needed]:
    found = everything(types[0])
    names = ("start_indices", "limit_indices", "strides")
    for mask, part, a, b, s in zip(found, own, *(attributes[n] for n in names), strict=True):
        mask[:] = False
        mask[a:b:s] = part
    return [found]


def _padded(attributes: Attributes, types: Sequence[TensorType], own: tuple[np.ndarray, ...]) -> list[Needed]:
    if any(attributes["interior_padding"]):
        return [everything(t) for t in types]
    found = []
    for n, part, low in zip(types[0].shape, own, attributes["edge_padding_low"], strict=True):
        places = np.arange(n) + low
        inside = (places >= 0) & (places < len(part))
        found.append(inside & part[np.clip(places, 0, len(part) - 1)])
    return [tuple(found), ()]


def _concatenated(attributes: Attributes, types: Sequence[TensorType], own: tuple[np.ndarray, ...]) -> list[Needed]:
    d = attributes["dimension"]
    ends = np.cumsum([t.shape[d] for t in types])
    parts = np.split(own[d], ends[:-1])
    return [(*own[:d], part, *own[d + 1 :]) if part.any() else None for part in parts]


def _updated(attributes: Attributes, types: Sequence[TensorType], own: tuple[np.ndarray, ...]) -> list[Needed]:
    """Of what is updated only what is needed beside the part, where that lies along one dimension."""
    inside, beside = [], []
    for d, (mask, start, k) in enumerate(zip(own, attributes["start_indices"], types[1].shape, strict=True)):
        inside.append(mask[start : start + k])
        rest = mask.copy()
        rest[start : start + k] = False
        if rest.any():
            beside.append((*own[:d], rest, *own[d + 1 :]))
    return [own if len(beside) > 1 else beside[0] if beside else None, tuple(inside)]


def _reversed(attributes: Attributes, types: Sequence[TensorType], own: tuple[np.ndarray, ...]) -> list[Needed]:
    return [tuple(part[::-1] if d in attributes["dimensions"] else part for d, part in enumerate(own))]


def _transposed(attributes: Attributes, types: Sequence[TensorType], own: tuple[np.ndarray, ...]) -> list[Needed]:
    back = np.argsort(attributes["permutation"])
    return [tuple(own[d] for d in back)]


def _broadcast(attributes: Attributes, types: Sequence[TensorType], own: tuple[np.ndarray, ...]) -> list[Needed]:
    dims = zip(types[0].shape, attributes["broadcast_dimensions"], strict=True)
    return [tuple(own[r] if n == len(own[r]) else np.array([own[r].any()]) for n, r in dims)]


def _reshaped(attributes: Attributes, types: Sequence[TensorType], own: tuple[np.ndarray, ...]) -> list[Needed]:
    """Of dimensions of one element everything, of others what is needed; everything where they are merged or split."""
    kept = [part for part in own if len(part) != 1]
    if [len(part) for part in kept] != [n for n in types[0].shape if n != 1]:
        return [everything(types[0])]
    rest = iter(kept)
    return [tuple(np.ones(1, bool) if n == 1 else next(rest) for n in types[0].shape)]


_MOVED: dict[str, Callable[[Attributes, Sequence[TensorType], tuple[np.ndarray, ...]], list[Needed]]] = {
    "slice": _sliced, "pad": _padded, "concatenate": _concatenated, "update_slice": _updated,
    "reverse": _reversed, "transpose": _transposed, "broadcast_in_dim": _broadcast, "reshape": _reshaped,
    "collective_permute": lambda attributes, types, own: [own],
}


def _either(a: Needed, b: Needed) -> Needed:
    if a is None or b is None:
        return b if a is None else a
    return tuple(x | y for x, y in zip(a, b, strict=True))


def _same(a: Needed, b: Needed) -> bool:
    if a is None or b is None:
        return a is b
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
