"""Reads the body of a manual computation op by op, and writes it as ops on global tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from eggshard.errors import ProgramError
from eggshard.frontends.globalization.global_writer import GlobalWriter
from eggshard.frontends.globalization.known_integers import Known, as_tensor, axes_of, evaluated
from eggshard.frontends.globalization.lines import common
from eggshard.frontends.globalization.local_values import (
    FILL,
    Cut,
    Dim,
    Local,
    Unreadable,
    as_fill,
    broadcast,
    forgotten,
    gathered,
    padded,
    permuted,
    placed,
    reversed_along,
    sliced,
    transposed,
    uniform,
    whole,
    within,
)
from eggshard.frontends.globalization.needed import Needed, in_loop, needed
from eggshard.frontends.normalization.divergence import DIVERGES
from eggshard.frontends.normalization.normal_forms import finished
from eggshard.ops import registry
from eggshard.ops.base import PASS, REDUCE
from eggshard.ops.elementwise.pointwise import Pointwise
from eggshard.ops.neighbours.halo import AlongDimension
from eggshard.ops.reductions.monoids import recognise_monoid
from eggshard.program.attributes import Attributes
from eggshard.program.program import Op, Region


class Partial(NamedTuple):
    """A reduction on each device, to be combined by a monoid between devices along some axes. ``finish`` writes it
    as a reduction of global tensors."""

    axes: tuple[str, ...]
    monoid: str
    finish: Callable[[], Local]


Value = Local | Known | Partial
#: A value of which nothing is needed.
NOTHING = Local((), ())
#: Dimensions of operands that lie on one line: (operand, dimension).
Group = list[tuple[int, int]]


class Reader:
    """Reads one region. given: its inputs, whose roots are the writer's. outputs: what is needed of its outputs."""

    def __init__(self, region: Region, write: GlobalWriter, given: Sequence[Local], outputs: Sequence[Needed]):
        self.mesh, self.region, self.write = write.mesh, region, write
        self.needed = needed(region, outputs)
        self._values: dict[int, Value] = dict(zip(region.inputs, given, strict=True))
        self._computed: dict[object, tuple[int, tuple[int, ...]]] = {}

    def read(self) -> list[Local]:
        """What the region returns. Unreadable, with the op's name, where an op has no global reading."""
        for op in self.region.ops:
            if all(self.needed[v] is None for v in op.results) and registry.is_pure(op.name, op.regions):
                continue
            self.write.location = op.location
            try:
                results = self._results(op)
            except (Unreadable, ProgramError) as error:
                raise Unreadable(f"{op.described}: {error}") from None
            for v, value in zip(op.results, results, strict=True):
                own = self.needed[v]
                self._values[v] = forgotten(value, own) if isinstance(value, Local) and own is not None else value
        return [self._local(self._values[v]) for v in self.region.outputs]

    def _results(self, op: Op) -> Sequence[Value]:
        given = [self._values.get(v, NOTHING) for v in op.operands]
        if len(op.results) == 1 and (known := evaluated(self.mesh, op, self.region.types[op.results[0]], given)):
            return [known]
        match op.name:
            case "sharding_constraint" | "optimization_barrier":
                return given
            case "all_reduce":
                return [self._all_reduced(op, value) for value in given]
            case "while":
                return self._looped(op, [self._local(v) for v in given])
            case "select" if isinstance(given[0], Known):
                return [self._selected(op, given[0], *map(self._local, given[1:]))]
        definition = registry.get(op.name)
        if isinstance(definition, AlongDimension):
            (value,), d = map(self._local, given), op.attributes["dimension"]
            taken = definition.indices(op.attributes, value.shape[d])
            return [value.with_dim(d, value.dims[d].at(value.dims[d].index[:, taken]))]
        movement = _MOVEMENTS.get(op.name, Reader._general)
        return [movement(self, op, *map(self._local, given))]

    def _local(self, value: Value) -> Local:
        if isinstance(value, Partial):
            raise Unreadable("it takes a reduction that is not combined between devices")
        return as_tensor(self.mesh, value, self.write) if isinstance(value, Known) else value

    # Data movement.

    def _constant(self, op: Op) -> Local:
        array = op.attributes["value"].array
        if op.attributes["value"].splat:
            return Local((self.write.constant(array.reshape(-1)[0]),), tuple(map(uniform, array.shape)))
        return Local((self.write.constant(array),), tuple(whole(d, n) for d, n in enumerate(array.shape)))

    def _iota(self, op: Op) -> Local:
        d, shape = op.attributes["iota_dimension"], op.attributes["shape"]
        root = self.write.op("iota", **{**op.attributes, "iota_dimension": 0, "shape": (shape[d],)})
        return Local((root,), tuple(whole(0, n) if i == d else uniform(n) for i, n in enumerate(shape)))

    def _sliced(self, op: Op, value: Local) -> Local:
        return sliced(value, *(op.attributes[name] for name in ("start_indices", "limit_indices", "strides")))

    def _padded(self, op: Op, value: Local, padding: Local) -> Local:
        if any(op.attributes["interior_padding"]) or not padding.is_number:
            raise Unreadable("it pads between elements, or with what differs from place to place")
        low, high = op.attributes["edge_padding_low"], op.attributes["edge_padding_high"]
        return self._around(value, padding.roots[0], low, high)

    def _around(self, value: Local, fill: int, low: Sequence[int], high: Sequence[int]) -> Local:
        return padded(self.write.filled_by(self.write.solid(value), fill), fill, low, high)

    def _updated(self, op: Op, base: Local, part: Local) -> Local:
        """The part that is set between what is left; padding, where one number is updated."""
        starts, shape = op.attributes["start_indices"], self.region.types[op.results[0]].shape
        ends = [a + k for a, k in zip(starts, part.shape, strict=True)]
        own = self.needed[op.results[0]] or ()
        left = [d for d, (mask, a, b) in enumerate(zip(own, starts, ends, strict=True))
                if mask[:a].any() or mask[b:].any()]
        if not left:
            return placed(part, starts, shape)
        if base.is_number:
            high = [n - b for n, b in zip(base.shape, ends, strict=True)]
            return self._around(part, base.roots[0], starts, high)
        if len(left) > 1:
            raise Unreadable("it sets a box of several dimensions")
        (d,) = left
        part = placed(part, [0 if n == d else a for n, a in enumerate(starts)],
                      [part.shape[d] if n == d else k for n, k in enumerate(base.shape)])
        before, after = (base.with_dim(d, base.dims[d].at(base.dims[d].index[:, a:b]))
                         for a, b in ((0, starts[d]), (ends[d], base.shape[d])))
        return self._joined((before, part, after), d, [v.shape[d] for v in (before, part, after)])

    def _permuted(self, op: Op, value: Local) -> Local:
        zero = self.write.scalar(0, self.region.types[op.results[0]].dtype)
        value = self.write.filled_by(value, zero)
        return permuted(value, self._senders(op.attributes["source_target_pairs"], value), zero)

    def _senders(self, pairs: Sequence[Sequence[int]], value: Local) -> dict[tuple[str, ...], np.ndarray]:
        """Per axes that cut a dimension, and per other axis, from which position along them each position receives.

        Unreadable where that depends on the position along other axes.
        """
        sender = np.full(self.mesh.size, FILL)
        for source, target in pairs:
            sender[target] = source
        cut = [d.axes for d in value.all_dims if d.axes]
        rest = [(a,) for a, n in self.mesh.axes.items() if n > 1 and not any(a in axes for axes in cut)]
        found: dict[tuple[str, ...], np.ndarray] = {}
        served, nothing = sender >= 0, np.zeros(self.mesh.size, bool)
        for axes in (*cut, *rest):
            where, positions = self.mesh.index(axes), np.full(self.mesh.count(axes), FILL)
            positions[where[served]] = where[sender[served]]
            if not np.array_equal(positions[where[served]], where[sender[served]]):
                raise Unreadable("what devices receive depends on several axes at once")
            nothing |= positions[where] == FILL
            found[axes] = positions
        if not np.array_equal(nothing, ~served):
            raise Unreadable("the devices that receive nothing are no slabs of the mesh")
        return found

    def _concatenated(self, op: Op, *values: Local) -> Local:
        d = op.attributes["dimension"]
        return self._joined(values, d, [self.region.types[v].shape[d] for v in op.operands])

    def _joined(self, values: Sequence[Local], d: int, sizes: Sequence[int]) -> Local:
        """Values one after the other along a dimension; numbers between tensors are fill."""
        values = [v if v.is_number or v.dims[d].source is not None else self.write.solid(v) for v in values]
        solid = next((v for v in values if not v.is_number), None)
        if solid is None:
            numbers = [v for v in values if v is not NOTHING]
            if len({v.roots for v in numbers}) > 1:
                raise Unreadable("different numbers are put together")
            return numbers[0].with_dim(d, uniform(sum(sizes)))
        values = [as_fill(v, solid, d, n) for v, n in zip(values, sizes, strict=True)]
        cuts = {v.dims[d].cut for v in values if v.dims[d].axes}
        if len(cuts) > 1:
            raise Unreadable("its operands are cut differently")
        cut = next(iter(cuts), Cut())
        if any(len(v.roots) > 1 and v.along != v.dims[d].source for v in values):
            values = [self.write.in_one(v) for v in values]
        try:
            return self._pieces(values, d, cut, _beside)
        except Unreadable:  # they lie differently in their roots
            return self._pieces([self.write.aligned(v, v.cuts) for v in values], d, cut, _beside)

    def _pieces(
        self, values: Sequence[Local], d: int, cut: Cut, combined: Callable[[Sequence[np.ndarray]], np.ndarray],
    ) -> Local:
        """Values that differ along dimension d, whose indices there are combined."""
        fill = next((v.fill for v in values if v.fill is not None and v.filled), None)
        values = [v if fill is None else self.write.filled_by(v, fill) for v in values]
        count = self.mesh.count(cut.axes)
        values = [v.with_dim(d, v.dims[d].among(cut.axes, count)) for v in values]
        found = gathered(values, d, lambda root, along: self.write.type_of(root).shape[along])
        made = values[0].with_dim(d, Dim(found.along, combined(found.places), cut))
        return replace(made, roots=found.roots, along=found.along, fill=fill)

    def _selected(self, op: Op, predicate: Known, on_true: Local, on_false: Local) -> Local | Partial:
        """A choice by device, which is one of indices; other choices are computed."""
        rows = predicate.array.reshape(self.mesh.size, -1)
        truth = rows[:, 0]
        if (rows == rows[:1, :1]).all():
            return on_true if truth[0] else on_false
        axes = axes_of(self.mesh, truth)
        solid = on_true if on_false.is_number else on_false
        cut_so = [d for d, dim in enumerate(solid.all_dims) if set(axes) <= set(dim.axes)]
        if (rows != rows[:, :1]).any() or not cut_so:
            return self._general(op, self._local(predicate), on_true, on_false)
        d, hidden, own = cut_so[0], len(solid.hidden), solid.all_dims[cut_so[0]]
        where = np.zeros(own.count, bool)
        where[self.mesh.index(own.axes)] = truth
        values = [as_fill(v if v.is_number else v.exposed, solid.exposed, d, own.size) for v in (on_true, on_false)]
        values = [v.with_dim(d, v.dims[d].among(own.axes, own.count).only(chosen))
                  for v, chosen in zip(values, (where, ~where), strict=True)]
        made = self._pieces(values, d, own.cut, lambda index: np.where(where[:, None], *index))
        return replace(made, hidden=made.dims[:hidden], dims=made.dims[hidden:])

    # Computation.

    def _general(self, op: Op, *values: Local) -> Local | Partial:
        """An op that computes: pointwise, or each of whose dimensions is one factor."""
        definition = registry.get(op.name)
        if isinstance(definition, Pointwise):
            return self._pointwise(op, values)
        if len(op.results) != 1 or {"shape", "result_types"} & set(definition.stated):
            raise Unreadable("it has no reading across devices")
        types = [tuple(self.region.types[v] for v in some) for some in (op.operands, op.results)]
        rule = definition.factors(op.attributes, *types)
        values = tuple(self.write.settled(v) for v in values)
        groups: list[Group] = [[] for _ in rule.factors]
        for i, factors in enumerate(rule.operands):
            for d, own in enumerate(factors):
                for factor in own:
                    groups[factor].append((i, d))
        whole_dims = all(len(own) == 1 for factors in (*rule.operands, *rule.results) for own in factors)
        if not whole_dims or not all(groups) or any(v.hidden for v in values):
            raise Unreadable("it takes dimensions apart, or differs between devices along none")
        reduced: dict[tuple[str, ...], str] = {}
        for kind, group in zip(rule.factors, groups, strict=True):
            cut = [values[i].dims[d] for i, d in group if values[i].dims[d].axes]
            if not cut or kind.kind == PASS and not kind.positional:
                continue
            if kind.kind != REDUCE or any(d.size != d.cut.stride for d in cut):
                raise Unreadable("it looks along a dimension that is cut")
            reduced[cut[0].axes] = kind.monoid

        def finish() -> Local:
            return self._combined(op, values, groups, [own[0] for own in rule.results[0]])

        if not reduced:
            return finish()
        if len(set(reduced.values())) > 1:
            raise Unreadable("it reduces in two ways")
        return Partial(tuple(a for axes in reduced for a in axes), next(iter(reduced.values())), finish)

    def _pointwise(self, op: Op, values: Sequence[Local]) -> Local:
        """Hidden dimensions are dimensions of all operands; lines along which nothing differs are left out."""
        values = [self.write.settled(v) for v in values]
        cuts = {d.axes: (n, d.cut) for v in values for n, d in enumerate(v.dims) if d.axes}
        (literal,) = (self.write.literal(v.roots[0]) for v in values) if len(values) == 1 else (None,)
        if op.name == "convert" and literal is not None:  # numbers to fill with are to be told apart
            (array,) = registry.get(op.name).evaluate(op.attributes, [literal])
            return replace(values[0], roots=(self.write.constant(array),))
        rank = self.region.types[op.results[0]].rank
        for cut_along, (d, cut) in cuts.items():
            values = [self.write.spread(v, rank, d, cut) if any(h.axes == cut_along for h in v.hidden) else v
                      for v in values]
        axes = list(dict.fromkeys(h.axes for v in values for h in v.hidden))
        shape = (*(1 for _ in axes), *self.region.types[op.results[0]].shape)
        seen = []
        for v in values:
            exposed = [next((h for h in v.hidden if h.axes == a), uniform(1)) for a in axes]
            dims = v.dims or [uniform(n) for n in shape[len(axes) :]]  # a scalar stands for a tensor
            seen.append(replace(v, hidden=(), dims=(*exposed, *dims)))
        groups = [[(i, d) for i in range(len(seen))] for d in range(len(shape))]
        made = self._combined(op, seen, groups, range(len(shape)), compact=True)
        return replace(made, hidden=made.dims[: len(axes)], dims=made.dims[len(axes) :])

    def _combined(self, op: Op, values: Sequence[Local], groups: Sequence[Group], result: Sequence[int],
                  compact: bool = False) -> Local:
        """An op on global tensors. groups: the dimensions that lie on one line each. result: the line of each dimension
        of the result. compact: lines along which nothing differs are left out."""
        dims = [[values[i].dims[d] for i, d in group] for group in groups]
        lengths = [[self.write.length(values[i], values[i].dims[d].source) for i, d in group] for group in groups]
        lines = [common(*some, self.mesh.count) for some in zip(dims, lengths, strict=True)]
        cut = [axis for found in lines for axis in found.line.cut.axes]
        if len(set(cut)) < len(cut):
            raise Unreadable("two of its dimensions are cut along the same axes")
        held = [some[0].size for some in dims]
        kept = [g for g, found in enumerate(lines) if not compact or any(a is not None for a in found.at)]
        key = (op.name, op.attributes, op.regions, tuple(found.key for found in lines), tuple(
            (v.roots, v.along, v.fill, tuple(d.source for d in v.dims)) for v in values))
        if key not in self._computed:
            middles = [found.middle(n) for found, n in zip(lines, held, strict=True)]
            at: list[dict[int, tuple[np.ndarray | None, int]]] = [{} for _ in values]
            for g in kept:
                for (i, d), index in zip(groups[g], lines[g].turned(middles[g]), strict=True):
                    at[i][d] = index, lines[g].line.size
            operands = [
                self.write.cut(v, {d: own[d][0] for d in sorted(own)}, [own[d][1] for d in sorted(own)])
                for v, own in zip(values, at, strict=True)]
            (root,) = self.write.emit(op.name, operands, op.attributes, op.regions)
            if self.write.type_of(root).shape != tuple(lines[g].line.size for g in result if g in kept):
                raise Unreadable("its attributes hold sizes of local tensors")
            self._computed[key] = root, tuple(found.anchor - m for found, m in zip(lines, middles, strict=True))
        root, anchors = self._computed[key]
        sources = dict(zip((g for g in result if g in kept), range(len(result)), strict=False))
        return Local((root,), tuple(
            lines[g].line.dim(sources[g], held[g], lines[g].anchor - anchors[g]) if g in sources else uniform(held[g])
            for g in result))

    def _all_reduced(self, op: Op, value: Value) -> Local:
        if not isinstance(value, Partial) or value.monoid != recognise_monoid(op.regions[0]):
            raise Unreadable("what it combines is not reduced on each device in the same way")
        groups = sorted(sorted(group) for group in op.attributes["replica_groups"])
        own = sorted(sorted(group) for group in self.mesh.groups(value.axes).tolist())
        if own != groups or not op.attributes.get("use_global_device_ids"):
            raise Unreadable("it combines along other axes than those that the reduced dimensions are cut along")
        return value.finish()

    def _looped(self, op: Op, before: Sequence[Local]) -> list[Value]:
        """A loop that carries global tensors, cut as what goes in or what comes out of an iteration is, and of local
        tensors what is needed."""
        condition, body = op.regions
        wanted = in_loop(op, [self.needed[v] for v in op.results], [self.region.types[v] for v in op.results])
        boxes = [tuple(map(_bounds, masks)) for masks in wanted]
        cuts = [v.cuts for v in before]
        while True:
            carried = [self.write.aligned(within(v, box), own)
                       for v, box, own in zip(before, boxes, cuts, strict=True)]
            given = [placed(v, [a for a, _ in box], outer.shape)
                     for v, box, outer in zip(carried, boxes, before, strict=True)]
            reader, after = self._inside(body, carried, given, wanted)
            finer = [tuple(map(_finer, a, v.cuts)) for a, v in zip(cuts, after, strict=True)]
            if finer == cuts:
                break
            cuts = finer
        outputs = [reader.write.aligned(within(v, box), own).roots[0]
                   for v, box, own in zip(after, boxes, cuts, strict=True)]
        test, (goes_on,) = self._inside(condition, carried, given, [()])
        if not goes_on.is_number:
            raise Unreadable("devices leave it at different times")
        regions = [finished(r.write.build(out)) for r, out in ((test, goes_on.roots), (reader, outputs))]
        attributes = Attributes({name: value for name, value in op.attributes.items() if name != DIVERGES})
        results = self.write.emit("while", [v.roots[0] for v in carried], attributes, tuple(regions))
        return [replace(v, roots=(root,)) for v, root in zip(given, results, strict=True)]

    def _inside(
        self, region: Region, carried: Sequence[Local], given: Sequence[Local], outputs: Sequence[Needed]
    ) -> tuple[Reader, list[Local]]:
        """A reader of a loop's region, and what the region returns."""
        write = GlobalWriter(self.mesh, [self.write.type_of(v.roots[0]) for v in carried])
        inputs = [replace(v, roots=(n,)) for n, v in zip(write.inputs, given, strict=True)]
        reader = Reader(region, write, inputs, outputs)
        return reader, reader.read()


def _beside(index: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(index, 1)


def _bounds(mask: np.ndarray) -> tuple[int, int]:
    """The first and the last place that is needed, this one excluded."""
    places = np.flatnonzero(mask)
    return (int(places[0]), int(places[-1]) + 1) if len(places) else (0, len(mask))


def _finer(a: Cut, b: Cut) -> Cut:
    if a.axes and b.axes and a != b:
        raise Unreadable("a loop carries what is cut differently after an iteration")
    return a if a.axes else b


#: How ops that move data, and those that make it, are read.
_MOVEMENTS: dict[str, Callable[..., Local | Partial]] = {
    "constant": Reader._constant,
    "iota": Reader._iota,
    "slice": Reader._sliced,
    "pad": Reader._padded,
    "update_slice": Reader._updated,
    "collective_permute": Reader._permuted,
    "concatenate": Reader._concatenated,
    "reverse": lambda reader, op, value: reversed_along(value, op.attributes["dimensions"]),
    "transpose": lambda reader, op, value: transposed(value, op.attributes["permutation"]),
    "reshape": lambda reader, op, value: reader.write.reshaped(value, op.attributes["shape"]),
    "broadcast_in_dim": lambda reader, op, value: broadcast(
        value, op.attributes["shape"], op.attributes["broadcast_dimensions"]),
}
