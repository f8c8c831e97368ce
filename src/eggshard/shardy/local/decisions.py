"""Decisions on how one op is computed on shards: the axes of each factor, and the layouts of its results.

Operands and results must agree on every factor; nothing is resharded here. An op that cannot be computed shard by shard
is refused, never computed wrongly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from eggshard.errors import EggshardError
from eggshard.ops.base import PERMUTE, REDUCE, REPLICATE, FactorRule, Types
from eggshard.program.attributes import Attributes
from eggshard.program.axes import Axes, axis_ref, in_mesh_order, shard_count, split_at, union
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Dim
from eggshard.program.sharding import atoms
from eggshard.shardy.attributes import axes_text
from eggshard.shardy.local.layouts import NO_MESH, Layout, refined, same_positions
from eggshard.shardy.local.parts import Part

#: Stands for the monoid of a region that is none by name.
BY_REGION = "region"


class Refusal(Exception):
    """Why an op cannot be computed on its shards as they are, with the remedy."""


class Decision(NamedTuple):
    """How a part is computed on shards.

    attributes: of the op on local shapes. by_place: it is to be written out by `OpDef.on_shards` instead. partial: the
    axes over which its results are partial values, by ``monoid``, on ``mesh``. keep: per operand number of the part the
    axes along which only the first device is to keep it, the others the monoid's identity.
    """

    attributes: Attributes
    by_place: bool = False
    mesh: Mesh = NO_MESH
    partial: Axes = ()
    monoid: str = ""
    keep: tuple[tuple[int, Axes], ...] = ()


class Cut(NamedTuple):
    """The axes that cut a factor, and a tensor that says so."""

    mesh: Mesh
    axes: Axes
    tensor: str


def decide(part: Part, operands: Sequence[Layout], results: Sequence[Layout]) -> Decision:
    """The decision for a part on these layouts of its operands and results; Refusal if there is none.

    The partial values of a reduction by a region are by the monoid `BY_REGION`.
    """
    sizes = {x.mesh.size for x in (*operands, *results) if not x.plain}
    if len(sizes) > 1:
        raise Refusal(f"its tensors are sharded on meshes of {sorted(sizes)} devices; use one mesh")
    types = tuple(x.type for x in operands), tuple(x.type for x in results)
    local_types = tuple(x.local for x in operands), tuple(x.local for x in results)
    try:
        rule = _rule(part, *types)
        cuts = _cuts(rule, operands, results)
        kinds = {f: rule.factors[f] for f, cut in cuts.items() if cut.axes}
        for f, factor in kinds.items():
            if factor.kind == REPLICATE:
                raise Refusal(f"along {cuts[f].tensor} it is sharded, and must be replicated; reshard it first")
        mesh, partial, monoid, keep = _partial(rule, cuts, operands, results)
        by_place = any(factor.positional for factor in kinds.values())
        windows = _windows(part, rule, operands, results)
        if windows and by_place:
            raise Refusal("it is sharded along dimensions in which it moves data in two ways; reshard it first")
        if by_place:
            return Decision(part.attributes, True, mesh, partial, monoid, keep)
        if windows:
            form = part.definition.window_form(part.attributes, *types, *local_types, windows)
            if form.attributes is None or form.layers:
                raise Refusal("it joins parts of several shards; run resolve-permutation-factors first")
            attributes = form.attributes
        else:
            attributes = part.definition.localize(part.attributes, *types, *local_types)
        made = part.definition.infer(attributes, local_types[0], part.regions)
    except EggshardError as error:
        raise Refusal(str(error)) from None
    if tuple(made) != local_types[1]:
        shown = ", ".join(map(str, made))
        raise Refusal(f"on shards it makes {shown}, its results' shardings say {', '.join(map(str, local_types[1]))}")
    return Decision(attributes, False, mesh, partial, monoid, keep)


def _rule(part: Part, operands: Types, results: Types) -> FactorRule:
    """The op's factors; what a region reduces along may be cut as well."""
    rule = part.definition.factors(part.attributes, operands, results)
    if part.definition.name != "reduce_general":
        return rule
    factors = (replace(f, kind=REDUCE, monoid=BY_REGION) if f.kind == REPLICATE else f for f in rule.factors)
    return replace(rule, factors=tuple(factors))


def _cuts(rule: FactorRule, operands: Sequence[Layout], results: Sequence[Layout]) -> dict[int, Cut]:
    """Per factor the axes that cut it. Factors that an op looks along are left out: windows tell of them."""
    found: dict[int, Cut] = {}
    sides = (("operand", operands, rule.operands), ("result", results, rule.results))
    for side, layouts, rows in sides:
        for i, (layout, row) in enumerate(zip(layouts, rows, strict=True)):
            for d, (parts, axes) in enumerate(zip(row, layout.dims, strict=True)):
                tensor = f"dimension {d} of {side} {i} ({layout.type} sharded as {layout})"
                for f, cut in _shared_out(rule, parts, layout.mesh, axes, tensor).items():
                    if rule.factors[f].kind == PERMUTE:
                        continue
                    other = found.setdefault(f, cut)
                    if not same_positions(other.mesh, other.axes, cut.mesh, cut.axes):
                        raise Refusal(
                            f"{other.tensor} and {tensor} are one index of the op and differ; "
                            "run insert-explicit-reshards and reshard-to-collectives first"
                        )
    return found


def _shared_out(rule: FactorRule, parts: tuple[int, ...], mesh: Mesh, axes: Axes, tensor: str) -> dict[int, Cut]:
    """A dimension's axes given to its factors: a minor one is cut only where the major ones are cut whole."""
    out: dict[int, Cut] = {}
    for f in parts:
        size, count = rule.factors[f].size, shard_count(axes, mesh.axes)
        if size == 1:
            continue
        taken: tuple[Axes, Axes] | None = (axes, ()) if size % count == 0 else split_at(axes, size, mesh.axes)
        if taken is None:
            raise Refusal(f"{tensor} is cut between the factors that make it up; reshard it first")
        out[f], axes = Cut(mesh, taken[0], tensor), taken[1]
    if axes:
        raise Refusal(f"{tensor} is cut finer than the op can be; reshard it first")
    return out


def _partial(
    rule: FactorRule, cuts: dict[int, Cut], operands: Sequence[Layout], results: Sequence[Layout]
) -> tuple[Mesh, Axes, str, tuple[tuple[int, Axes], ...]]:
    """The mesh, axes and monoid of partial results, and the operands to be kept on first devices only."""
    reduced = {f: cut for f, cut in cuts.items() if cut.axes and rule.factors[f].kind == REDUCE}
    sources = [(cut.mesh, cut.axes, rule.factors[f].monoid) for f, cut in reduced.items()]
    sources += [(x.mesh, x.unreduced, x.monoid) for x in operands if x.unreduced]
    if not sources:
        return NO_MESH, (), "", ()
    mesh, _, monoid = sources[0]
    if any(m != mesh for m, _, _ in sources) or any(x.sharded and x.mesh != mesh for x in (*operands, *results)):
        raise Refusal("it makes partial sums over meshes of different device orders; reshard it first")
    if any(other != monoid for *_, other in sources):
        kinds = " and ".join(dict.fromkeys(other for *_, other in sources))
        raise Refusal(f"its results would be partial sums by {kinds} at once; reduce one of them first")
    lists = [axes for _, axes, _ in sources]
    cutting = [axes for x in (*operands, *results) for axes in x.dims]
    fine = refined(mesh, *lists, *cutting)
    axes: Axes = ()
    for more in lists:
        axes = union(axes, more, mesh.axes)
    by_factor: dict[str, int] = {n: f for f, cut in reduced.items() for n in atoms(cut.axes, fine)}
    keep: dict[int, list[str]] = {}
    for name in atoms(axes, fine):
        adding = frozenset(i for i, x in enumerate(operands) if name in atoms(x.unreduced, fine))
        if name in by_factor:
            roles = [frozenset(rule.factors[by_factor[name]].accumulators)]
        else:
            roles = [frozenset(who) for kind, who in rule.linear if kind == monoid]
        fitting = [who for who in roles if adding <= who]
        if not fitting:
            raise Refusal(_not_linear(operands, adding))
        for i in min(fitting, key=len) - adding:
            keep.setdefault(i, []).append(name)
        for x in (*results, *(() if name in by_factor else operands)):
            if any(name in atoms(dim, fine) for dim in x.dims):
                raise Refusal(
                    f"its partial sums over {name} meet {x.type} sharded along the same axis; reduce them first"
                )
    kept = tuple((i, in_mesh_order(map(axis_ref, parts), mesh.axes)) for i, parts in sorted(keep.items()))
    return mesh, axes, monoid, kept


def _not_linear(operands: Sequence[Layout], adding: frozenset[int]) -> str:
    i = min(adding)
    return (
        f"operand {i} ({operands[i].type}) holds partial sums over {axes_text(operands[i].unreduced)}, which the op "
        "does not pass on; put an sdy.all_reduce or an sdy.reduce_scatter before it"
    )


def _windows(
    part: Part, rule: FactorRule, operands: Sequence[Layout], results: Sequence[Layout]
) -> dict[int, Dim]:
    """The sharded result dimensions along which the op looks around, where every shard has all that its device needs.

    Refusal where some device needs what others hold.
    """
    def looked_along(row: tuple[tuple[int, ...], ...]) -> set[int]:
        return {d for d, parts in enumerate(row) if any(rule.factors[f].kind == PERMUTE for f in parts)}

    wanted = {d for d in looked_along(rule.results[0]) if results[0].dims[d]}
    moved = [looked_along(row) for row in rule.operands]
    held = [(i, d) for i, dims in enumerate(moved) for d in dims if operands[i].dims[d]]
    if not wanted and not held:
        return {}
    types = tuple(x.type for x in operands), tuple(x.type for x in results)
    reaches = part.definition.reaches(part.attributes, *types)
    remedy = "run resolve-permutation-factors first"
    reached: set[int] = set()
    for i, dims in enumerate(moved):
        for d in sorted(dims):
            reach = reaches[i][d] if reaches else None
            tensor = f"dimension {d} of operand {i} ({operands[i].type} sharded as {operands[i]})"
            if reach is None:
                if operands[i].dims[d]:
                    raise Refusal(f"{tensor} is sharded, and the op needs it whole; {remedy}")
                continue
            if not operands[i].dims[d] and reach.dim not in wanted:
                continue
            result = results[0]
            tile, size = result.local.shape[reach.dim], operands[i].type.shape[d]
            if reach.scale * tile % reach.divisor:
                raise Refusal(f"{tensor} is spread out, and shards begin at other holes between its elements; {remedy}")
            begins, starts = np.broadcast_arrays(result.starts(reach.dim), operands[i].starts(d))
            for low, start in zip(begins.tolist(), starts.tolist(), strict=True):
                span = (-(low + tile - 1), 1 - low) if reach.mirrored else (low, low + tile)
                first, stop = reach.elements(*span)
                inside = first == start and stop <= min(start + operands[i].local.shape[d], size)
                if reach.wrapped or not inside:
                    raise Refusal(f"{tensor} needs elements of other shards; {remedy}")
            reached.add(reach.dim)
    if wanted - reached:
        raise Refusal(f"dimension {min(wanted - reached)} of its result is sharded, its operands are not; {remedy}")
    return {
        d: Dim(tuple(axis.name for axis in results[0].dims[d]), results[0].local.shape[d]) for d in sorted(reached)
    }
