"""Strips: what of a step's operands makes a strip of its results, and the step on strips.

A strip is a part of one dimension. Seen as ``(outer, length, inner)``, row-major, a dimension is cut along the middle:
what a gather receives from every device is then cut alike, and the strips of its result are gathered from strips of
its operand. A slice takes its strips from where it begins. A step's *lines* are the ways to cut it: computed on strips
of its operands, it makes strips of all its results, with the same collectives on smaller shards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from eggshard.placement.exchange import Boxes, BoxExchange
from eggshard.plan.piece_steps import Exchange, Round
from eggshard.plan.steps import (
    Action,
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    KeepFirst,
    Local,
    Mask,
    Moves,
    ReduceScatter,
    Resize,
    Slice,
)
from eggshard.plan.window_steps import BoxSelect, Crop, EdgeFill, HaloExchange
from eggshard.program.mesh import Mesh
from eggshard.program.ops import registry
from eggshard.program.ops.base import PASS
from eggshard.program.types import TensorType

Types = Sequence[TensorType]


class Strip(NamedTuple):
    """How a dimension is cut: as ``(outer, length, inner)``, along the middle.

    start: where the length begins, of an array that is longer; then it has no outer or inner part.
    """

    dim: int
    outer: int
    length: int
    inner: int = 1
    start: int | None = None

    def of(self, type_: TensorType, parts: int) -> TensorType:
        """The type of one of so many strips."""
        shape = list(type_.shape)
        shape[self.dim] = self.outer * (self.length // parts) * self.inner
        return type_.with_shape(tuple(shape))

    def through(self, here: Strip, there: Strip) -> Strip | None:
        """The same strip at another end of a line that it lies on, None if it does not lie on this line."""
        if self.dim != here.dim or self.start != here.start or self.outer % here.outer or self.inner % here.inner:
            return None
        outer, inner = self.outer // here.outer, self.inner // here.inner
        if outer * self.length * inner != here.length or (there.start is not None and outer * inner > 1):
            return None
        return Strip(there.dim, there.outer * outer, self.length, inner * there.inner, there.start)


class Line(NamedTuple):
    """A way to cut a step: the strips of its operands (None: taken whole) and of its results, all equally long."""

    operands: tuple[Strip | None, ...]
    results: tuple[Strip, ...]

    def at(self, here: Strip, strip: Strip) -> Line | None:
        """The line of a finer strip, given at one end of this one; None if it does not lie on it."""
        if strip.through(here, here) is None:
            return None
        ends = [None if end is None else strip.through(here, end) for end in (*self.operands, *self.results)]
        count = len(self.operands)
        if any(end is None and was is not None for end, was in zip(ends, self.operands, strict=False)):
            return None
        return Line(tuple(ends[:count]), tuple(end for end in ends[count:] if end is not None))


def lines(mesh: Mesh, action: Action, operands: Types, results: Types) -> list[Line]:
    """All ways to cut a step; none for steps with effects, and for those of which nothing is known."""
    if action.has_effects:
        return []
    return [
        line for line in _lines(mesh, action, operands, results)
        if line.results and line.results[0].length > 1
    ]


def _lines(mesh: Mesh, action: Action, operands: Types, results: Types) -> Iterator[Line]:
    match action:
        case Local(name="slice", attributes=attributes):
            yield from _local_lines(action, operands, results)
            if all(step == 1 for step in attributes["strides"]):
                for d, (n, m) in enumerate(zip(operands[0].shape, results[0].shape, strict=True)):
                    if m < n:
                        yield Line((Strip(d, 1, m, 1, attributes["start_indices"][d]),), (Strip(d, 1, m),))
        case Local():
            yield from _local_lines(action, operands, results)
        case AllGather(moves=moves):
            yield from _moved(mesh, operands[0], moves, ())
        case AllToAll(sources=sources, targets=targets):
            yield from _moved(mesh, operands[0], sources, targets)
        case ReduceScatter(moves=moves) | Slice(moves=moves):
            yield from _moved(mesh, operands[0], (), moves)
        case AllReduce() | CollectivePermute() | KeepFirst():
            yield from _kept(operands, results, ())
        case Crop(dim=dim, new=new, offsets=offsets):
            yield from _kept(operands, results, (dim,))
            if len(set(offsets)) == 1 and 0 <= -offsets[0] <= operands[0].shape[dim] - new:
                yield Line((Strip(dim, 1, new, 1, -offsets[0]),), (Strip(dim, 1, new),))
        case Mask(dim=dim) | HaloExchange(dim=dim) | EdgeFill(dim=dim):
            yield from _kept(operands, results, (dim,))
        case BoxSelect(box=box):
            yield from _kept(operands, results, tuple(dim for dim, *_ in box))
        case Resize(shape=shape):
            changed = (d for d, (m, n) in enumerate(zip(operands[0].shape, shape, strict=True)) if m != n)
            yield from _kept(operands, results, tuple(changed))
        case Exchange():
            yield from _exchanged(action, operands[0])
        case BoxExchange(piece=piece):
            for d, size in enumerate(piece):
                yield Line((Strip(d, operands[0].shape[d] // size, size),), (Strip(d, action.shape[d] // size, size),))


def _kept(operands: Types, results: Types, but: Sequence[int]) -> Iterator[Line]:
    """Dimensions that are the same in all operands (scalars are taken whole) and results."""
    for d, n in enumerate(results[0].shape):
        if d not in but:
            strip = Strip(d, 1, n)
            if all(not t.rank or t.shape[d] == n for t in operands):
                yield Line(tuple(strip if t.rank else None for t in operands), (strip,) * len(results))


def _moved(mesh: Mesh, operand: TensorType, grow: Moves, shrink: Moves) -> Iterator[Line]:
    more = {d: mesh.count(axes) for d, axes in grow}
    fewer = {d: mesh.count(axes) for d, axes in shrink}
    for d, n in enumerate(operand.shape):
        part = n // fewer.get(d, 1)
        yield Line((Strip(d, fewer.get(d, 1), part),), (Strip(d, more.get(d, 1), part),))


def _exchanged(action: Exchange, operand: TensorType) -> Iterator[Line]:
    """Pieces are cut, where they lie on a grid of their own size."""
    rounds = (*action.rounds, *action.local)
    for d, size in enumerate(action.piece):
        starts = {row[d] for r in rounds for rows in (r.source_starts, r.target_starts) for row in rows}
        if not (operand.shape[d] % size or action.shape[d] % size or any(s % size for s in starts)):
            yield Line((Strip(d, operand.shape[d] // size, size),), (Strip(d, action.shape[d] // size, size),))


def _local_lines(action: Local, operands: Types, results: Types) -> Iterator[Line]:
    definition = registry.get(action.name)
    rule = definition.factors(action.attributes, tuple(operands), tuple(results))
    for f, factor in enumerate(rule.factors):
        if factor.kind != PASS or factor.positional:
            continue

        def ends(rows: Sequence[Sequence[Sequence[int]]], f: int = f) -> list[list[Strip]]:
            sizes = [g.size for g in rule.factors]
            return [[
                Strip(d, math.prod(sizes[g] for g in dims[: dims.index(f)]), sizes[f],
                      math.prod(sizes[g] for g in dims[dims.index(f) + 1 :]))
                for d, dims in enumerate(row) if f in dims
            ] for row in rows]

        taken, made = ends(rule.operands), ends(rule.results)
        if all(len(found) == 1 for found in made) and all(len(found) < 2 for found in taken):
            yield Line(tuple(found[0] if found else None for found in taken), tuple(found[0] for found in made))


def narrowed(mesh: Mesh, action: Action, line: Line, parts: int, operands: Types, results: Types) -> Action:
    """The step on one of so many strips; operands and results are the whole ones."""
    given = tuple(t if s is None else s.of(t, parts) for t, s in zip(operands, line.operands, strict=True))
    made = tuple(s.of(t, parts) for t, s in zip(results, line.results, strict=True))
    taken = line.operands[0] if line.operands else None
    match action:
        case Local(name="slice", attributes=attributes) if taken is not None and taken.start is not None:
            d, size = taken.dim, made[0].shape[taken.dim]
            starts, limits = (
                (*attributes[key][:d], value, *attributes[key][d + 1 :])
                for key, value in (("start_indices", 0), ("limit_indices", size))
            )
            attributes = attributes.updated(start_indices=starts, limit_indices=limits)
            return replace(action, attributes=attributes, result_types=made)
        case Crop() if taken is not None and taken.start is not None:
            return Resize(made[0].shape)
        case Local(name=name, attributes=attributes):
            definition = registry.get(name)
            attributes = definition.localize(attributes, tuple(operands), tuple(results), given, made)
            flops = definition.flops(attributes, given, made)
            return replace(action, attributes=attributes, result_types=made, flops=flops)
        case Resize():
            return Resize(made[0].shape)
        case Exchange(piece=piece, rounds=rounds, local=local):
            d = line.results[0].dim
            part = piece[d] // parts

            def cut(r: Round) -> Round:
                rows = (
                    tuple((*row[:d], row[d] // piece[d] * part, *row[d + 1 :]) for row in starts)
                    for starts in (r.source_starts, r.target_starts)
                )
                return Round(r.pairs, *rows)

            return replace(action, piece=(*piece[:d], part, *piece[d + 1 :]), shape=made[0].shape,
                           rounds=tuple(map(cut, rounds)), local=tuple(map(cut, local)))
        case BoxExchange(piece=piece, whole=whole):
            d = line.results[0].dim
            part = piece[d] // parts

            def thinner(boxes: Boxes) -> Boxes:
                return (*boxes[:d], boxes[d]._replace(size=boxes[d].size // piece[d] * part), *boxes[d + 1 :])

            return replace(action, whole=(*whole[:d], -(-whole[d] // piece[d]) * part, *whole[d + 1 :]),
                           source=thinner(action.source), target=thinner(action.target))
    return action
