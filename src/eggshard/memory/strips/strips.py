"""Strips: which parts of a step's operands make a strip of its results, and the step on strips.

A strip is a part of one dimension. The dimension is seen in row-major order as ``(outer, length, inner)`` and cut along
the middle, so that what a gather receives from every device is cut alike and strips of its result are gathered from
strips of its operand. A step's *lines* are the ways to cut it: on strips of its operands it computes strips of all its
results, with the same collectives on smaller shards. Ops that access neighbours *read* wider strips at other offsets
(`OpDef.reaches`), so strips overlap.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from eggshard.memory.strips.margins import margins_of
from eggshard.ops import registry
from eggshard.ops.base import PASS
from eggshard.ops.windowing import EDGE_MODES, Reach, WindowForm
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Dim
from eggshard.program.types import TensorType
from eggshard.steps.authored_steps import DeviceNumber, GroupCollective, OnFirstDevice
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.exchange import Boxes, BoxExchange
from eggshard.steps.handlers import Handlers
from eggshard.steps.moves import Moves
from eggshard.steps.piece_steps import Exchange, Round
from eggshard.steps.steps import (
    Action,
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    KeepFirst,
    Local,
    Mask,
    ReduceScatter,
    Resize,
    Slice,
)
from eggshard.steps.window_steps import BoxSelect, Crop, EdgeFill, HaloExchange, WindowExchange

Types = Sequence[TensorType]


class Strip(NamedTuple):
    """How a dimension is cut: as ``(outer, length, inner)``, along the middle."""

    dim: int
    outer: int
    length: int
    inner: int = 1

    def of(self, type_: TensorType, width: int) -> TensorType:
        """Return the local type of a strip of ``type_`` that is ``width`` indices wide."""
        shape = list(type_.shape)
        shape[self.dim] = self.outer * width * self.inner
        return type_.with_shape(tuple(shape))

    def through(self, here: Strip, there: Strip) -> Strip | None:
        """Translate this strip from one end of a line (``here``) to the other (``there``).

        Returns None if the strip does not lie on the line.
        """
        if self.dim != here.dim or self.outer % here.outer or self.inner % here.inner:
            return None
        outer, inner = self.outer // here.outer, self.inner // here.inner
        if outer * self.length * inner != here.length:
            return None
        return Strip(there.dim, there.outer * outer, self.length, inner * there.inner)


class Read(NamedTuple):
    """What a strip of the result reads of an operand elsewhere than at its own indices.

    beyond: what it reads past the operand's ends: nothing that matters (""), the operand's own elements (an edge mode,
    or ``wrapped``: from its other end), or what other devices send (``received``).
    """

    reach: Reach
    beyond: str = ""

    def indices(self, start: int, width: int) -> tuple[int, int]:
        """Return the first operand index that results ``[start, start + width)`` need, and how many they need."""
        low, high = (1 - start - width, 1 - start) if self.reach.mirrored else (start, start + width)
        first, stop = self.reach.elements(low, high)
        return first, stop - first

    def margins(self, result: int, operand: int) -> tuple[int, int]:
        """How many indices below and above an operand of this length a result of that length reads."""
        first, width = self.indices(0, result)
        return max(0, -first), max(0, first + width - operand)


class Line(NamedTuple):
    """A way to cut a step: the strips of its operands (None: taken whole) and of its results.

    reads: of the operands that are not read at the result's own indices, where they are; empty where all are.
    """

    operands: tuple[Strip | None, ...]
    results: tuple[Strip, ...]
    reads: tuple[Read | None, ...] = ()

    def read(self, operand: int) -> Read | None:
        """Return where an operand is read, or None if it is read at the result's own indices."""
        return self.reads[operand] if self.reads else None

    def at(self, here: Strip, strip: Strip) -> Line | None:
        """The line of a finer strip, given at one end of this one; None if it does not lie on it."""
        if self.reads:
            return self if strip == here else None
        if strip.through(here, here) is None:
            return None
        ends = [None if end is None else strip.through(here, end) for end in (*self.operands, *self.results)]
        count = len(self.operands)
        if any(end is None and was is not None for end, was in zip(ends, self.operands, strict=False)):
            return None
        return Line(tuple(ends[:count]), tuple(end for end in ends[count:] if end is not None))


def lines(mesh: Mesh, action: Action, operands: Types, results: Types) -> list[Line]:
    """All ways to cut a step; none for steps with effects, and for those of which nothing is known."""
    if action.has_effects or not _lines.has(action):
        return []
    return [
        line for line in _lines(action, mesh, operands, results)
        if line.results and line.results[0].length > 1
    ]


_lines: Handlers[Iterator[Line]] = Handlers("cutting into strips")
_lines.refuses("it is done whole", Branch, DeviceNumber, GroupCollective, Loop, OnFirstDevice)


@_lines.handles(Local)
def _(action: Local, mesh: Mesh, operands: Types, results: Types) -> Iterator[Line]:
    yield from _local_lines(action, operands, results)
    yield from _reading_lines(action, operands, results)


@_lines.handles(AllGather)
def _(action: AllGather, mesh: Mesh, operands: Types, results: Types) -> Iterator[Line]:
    return _moved(mesh, operands[0], action.moves, ())


@_lines.handles(AllToAll)
def _(action: AllToAll, mesh: Mesh, operands: Types, results: Types) -> Iterator[Line]:
    return _moved(mesh, operands[0], action.sources, action.targets)


@_lines.handles(ReduceScatter, Slice)
def _(action: ReduceScatter | Slice, mesh: Mesh, operands: Types, results: Types) -> Iterator[Line]:
    return _moved(mesh, operands[0], (), action.moves)


@_lines.handles(AllReduce, BoxSelect, CollectivePermute, KeepFirst)
def _(action: Action, mesh: Mesh, operands: Types, results: Types) -> Iterator[Line]:
    return _kept(operands, results, ())


@_lines.handles(Mask, EdgeFill)
def _(action: Mask | EdgeFill, mesh: Mesh, operands: Types, results: Types) -> Iterator[Line]:
    return _kept(operands, results, (action.dim,))


@_lines.handles(Crop)
def _(action: Crop, mesh: Mesh, operands: Types, results: Types) -> Iterator[Line]:
    dim, offsets = action.dim, action.offsets
    yield from _kept(operands, results, (dim,))
    if len(set(offsets)) == 1:
        yield _shifted(dim, operands[0], results[0], Read(Reach(dim, -offsets[0], -offsets[0])))


@_lines.handles(WindowExchange)
def _(action: WindowExchange, mesh: Mesh, operands: Types, results: Types) -> Iterator[Line]:
    yield from _kept(operands, results, [part.dim for part in action.exchanges])
    margins = margins_of(action, operands[0]) if isinstance(action, HaloExchange) else None
    if margins is not None:
        dim, first = margins.action.dim, -action.exchanges[0].offsets[0]
        received = "received" if margins.first + margins.last else ""
        yield _shifted(dim, operands[0], results[0], Read(Reach(dim, first, first), received))


@_lines.handles(Resize)
def _(action: Resize, mesh: Mesh, operands: Types, results: Types) -> Iterator[Line]:
    sizes = zip(operands[0].shape, action.shape, strict=True)
    return _kept(operands, results, [d for d, (m, n) in enumerate(sizes) if m != n])


@_lines.handles(Exchange)
def _(action: Exchange, mesh: Mesh, operands: Types, results: Types) -> Iterator[Line]:
    return _exchanged(action, operands[0])


@_lines.handles(BoxExchange)
def _(action: BoxExchange, mesh: Mesh, operands: Types, results: Types) -> Iterator[Line]:
    for d, size in enumerate(action.piece):
        yield Line((Strip(d, operands[0].shape[d] // size, size),), (Strip(d, action.shape[d] // size, size),))


def _kept(operands: Types, results: Types, but: Sequence[int]) -> Iterator[Line]:
    """Dimensions that are the same in all operands (scalars are taken whole) and results."""
    for d, n in enumerate(results[0].shape):
        if d not in but:
            strip = Strip(d, 1, n)
            if all(t.shape[d : d + 1] == (n,) for t in (*(t for t in operands if t.rank), *results)):
                yield Line(tuple(strip if t.rank else None for t in operands), (strip,) * len(results))


def _shifted(dim: int, operand: TensorType, result: TensorType, read: Read) -> Line:
    """Along a dimension that a step shifts or resizes."""
    return Line((Strip(dim, 1, operand.shape[dim]),), (Strip(dim, 1, result.shape[dim]),), (read,))


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


def _reading_lines(action: Local, operands: Types, results: Types) -> Iterator[Line]:
    """Dimensions along which an op looks at neighbours."""
    definition = registry.get(action.name)
    reaches = definition.reaches(action.attributes, tuple(operands), tuple(results))
    if reaches is None:
        return
    rule = definition.factors(action.attributes, tuple(operands), tuple(results))
    for dim, length in enumerate(results[0].shape):
        along = [[(d, r) for d, r in enumerate(row) if r is not None and r.dim == dim] for row in reaches]
        factors = set(rule.results[0][dim])
        tied = any(not found and any(factors.intersection(f) for f in row)
                   for found, row in zip(along, rule.operands, strict=True))
        if not any(along) or tied or length < 2 or any(len(found) > 1 for found in along):
            continue
        if any(r.divisor > 1 for found in along for _, r in found):
            continue
        form = window_form(action, dim, operands, results, operands, results)
        if any(d != dim for layer in form.layers for d, *_ in layer.box):
            continue
        modes = {fill.operand: str(fill.value) for fill in form.fills if fill.value in EDGE_MODES}
        yield Line(
            tuple(Strip(found[0][0], 1, t.shape[found[0][0]]) if found else None
                  for t, found in zip(operands, along, strict=True)),
            tuple(Strip(dim, 1, length) for _ in results),
            tuple(Read(found[0][1], "wrapped" if found[0][1].wrapped else modes.get(k, "")) if found else None
                  for k, found in enumerate(along)),
        )


def window_form(
    action: Local, dim: int, operands: Types, results: Types, given: Types, made: Types
) -> WindowForm:
    """An op on strips along a dimension of its results, of which it is ``given`` exactly what they need."""
    windowed = {dim: Dim((), made[0].shape[dim])}
    return registry.get(action.name).window_form(
        action.attributes, tuple(operands), tuple(results), tuple(given), tuple(made), windowed
    )


def narrowed(action: Action, line: Line, width: int, operands: Types, results: Types) -> Action:
    """The step on strips of so many indices, which reads its operands at its own; operands and results are the whole
    ones."""
    given = tuple(t if s is None else s.of(t, width) for t, s in zip(operands, line.operands, strict=True))
    made = tuple(s.of(t, width) for t, s in zip(results, line.results, strict=True))
    return _narrowed(action, line, width, operands, results, given, made)


_narrowed: Handlers[Action] = Handlers("narrowing to strips")
_narrowed.refuses("it is done whole", Branch, DeviceNumber, GroupCollective, Loop, OnFirstDevice)


@_narrowed.handles(AllGather, AllReduce, AllToAll, BoxSelect, CollectivePermute, Crop, EdgeFill, KeepFirst, Mask,
                   ReduceScatter, Slice, WindowExchange)
def _(action: Action, line: Line, width: int, operands: Types, results: Types, given: Types, made: Types) -> Action:
    """Return the action unchanged: none of its fields depends on the strip's width."""
    return action


@_narrowed.handles(Local)
def _(action: Local, line: Line, width: int, operands: Types, results: Types, given: Types, made: Types) -> Action:
    definition = registry.get(action.name)
    attributes = definition.localize(action.attributes, tuple(operands), tuple(results), tuple(given), tuple(made))
    flops = definition.flops(attributes, tuple(given), tuple(made))
    return replace(action, attributes=attributes, result_types=tuple(made), flops=flops)


@_narrowed.handles(Resize)
def _(action: Resize, line: Line, width: int, operands: Types, results: Types, given: Types, made: Types) -> Action:
    return Resize(made[0].shape)


@_narrowed.handles(Exchange)
def _(action: Exchange, line: Line, width: int, operands: Types, results: Types, given: Types, made: Types) -> Action:
    d, piece = line.results[0].dim, action.piece

    def cut(r: Round) -> Round:
        rows = (
            tuple((*row[:d], row[d] // piece[d] * width, *row[d + 1 :]) for row in starts)
            for starts in (r.source_starts, r.target_starts)
        )
        return Round(r.pairs, *rows)

    return replace(action, piece=(*piece[:d], width, *piece[d + 1 :]), shape=made[0].shape,
                   rounds=tuple(map(cut, action.rounds)), local=tuple(map(cut, action.local)))


@_narrowed.handles(BoxExchange)
def _(
    action: BoxExchange, line: Line, width: int, operands: Types, results: Types, given: Types, made: Types
) -> Action:
    d, piece, whole = line.results[0].dim, action.piece, action.whole

    def thinner(boxes: Boxes) -> Boxes:
        return (*boxes[:d], boxes[d]._replace(size=boxes[d].size // piece[d] * width), *boxes[d + 1 :])

    return replace(action, whole=(*whole[:d], -(-whole[d] // piece[d]) * width, *whole[d + 1 :]),
                   source=thinner(action.source), target=thinner(action.target))
