"""Logical axes: dimensions of leaves by names, and rules that say which mesh axes shard those of a name, as in flax."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
from jax.sharding import PartitionSpec

from eggshard.errors import ShardingError
from eggshard.planner.choosing.narrowing import Dims, End, Restriction, Tactic
from eggshard.program.mesh import Mesh
from eggshard.tactics.leaves import pattern
from eggshard.tactics.primitives import checked

#: Per dimension its name; None where it is not sharded.
Names = tuple[str | None, ...]
Axes = tuple[str, ...]
#: A name, and the mesh axes that shard dimensions of this name: one, several, or for None none.
Rule = tuple[str, str | tuple[str, ...] | None]


@dataclass(frozen=True)
class LogicalAxes(Tactic):
    """The tactic of `logical_axes`, by which dimensions of one name lie alike."""

    named: tuple[tuple[re.Pattern[str], Names], ...] = ()
    given: tuple[tuple[str, Axes], ...] = ()

    def rules(self, at: Mapping[End, Dims], mesh: Mesh) -> tuple[Rule, ...]:
        """The rules that were given, and those by which most of what has another name lies, by bytes."""
        votes = {name: max(votes, key=votes.__getitem__) for name, votes in self._votes(at, mesh).items()}
        rules = (*self.given, *votes.items())
        return tuple((name, None if not axes else axes[0] if len(axes) == 1 else axes) for name, axes in rules)

    def settled(self, at: Mapping[End, Dims], mesh: Mesh) -> Tactic | None:
        """The tactic with one rule more, for the name of which most bytes lie otherwise than most; or None."""
        votes = self._votes(at, mesh)
        odd = {name: sum(of.values()) - max(of.values()) for name, of in votes.items() if len(of) > 1}
        if not odd:
            return None
        name = max(odd, key=odd.__getitem__)
        most = max(votes[name], key=votes[name].__getitem__)
        return replace(_tactic(self.named, (*self.given, (name, most))), spared=self.spared)

    def _votes(self, at: Mapping[End, Dims], mesh: Mesh) -> dict[str, dict[Axes, int]]:
        """Per name without a rule the bytes that are sharded along axes."""
        votes: dict[str, dict[Axes, int]] = defaultdict(lambda: defaultdict(int))
        known = {*mesh.axes, *(name for name, _ in self.given)}
        for end, names in _of(self.named, [end for end in at if end.name not in self.spared]):
            for name, axes in zip(names, at[end], strict=True):
                if name is not None and name not in known:
                    votes[name][axes] += end.type.bytes
        return votes


def logical_axes(axes: Mapping[str, Sequence[str | None]] | Sequence[Any], rules: Iterable[Rule] = ()) -> Tactic:
    """Shard dimensions of one name alike: as a rule says, or else as the search finds.

    axes: per argument, static ones left out, a tree of names per dimension, in tuples or ``PartitionSpec``s, as
    ``nn.get_partition_spec`` of flax gives them, with None for what has no names; or names by globs over leaves,
    ``{"*['w']": ("embed", "mlp")}``. None as a name says that a dimension is not sharded, and the name of a mesh axis
    that this axis shards it. rules: names with mesh axes, in flax's order: the first rule of a name holds whose axes no
    other dimension of the leaf has taken; where all are taken, the dimension is not sharded. `Shardings.rules` are
    those that were given and found.

    Where the search has dimensions of a name lie differently, it is asked again with the name as most bytes lie.

    ShardingError for names that do not fit leaves, MeshError for axes that the mesh has not.
    """
    if isinstance(axes, Mapping):
        named = [(pattern(glob), _names(names)) for glob, names in axes.items()]
    else:
        found = [(f"args[{i}]{jax.tree_util.keystr(path)}", names) for i, tree in enumerate(axes)
                 for path, names in jax.tree_util.tree_flatten_with_path(tree, is_leaf=_is_names)[0]]
        # A box of flax, which has one name more, stands where its names do.
        named = [(re.compile(re.escape(where) + r"([\[.].*)?"), _names(names)) for where, names in found
                 if names is not None]
    given = [(name, () if to is None else (to,) if isinstance(to, str) else tuple(to)) for name, to in rules]
    return _tactic(tuple(named), tuple(given))


def _tactic(named: tuple[tuple[re.Pattern[str], Names], ...], given: tuple[tuple[str, Axes], ...]) -> LogicalAxes:
    def restrictions(ends: Sequence[End], mesh: Mesh) -> Iterator[Restriction]:
        found = False
        for end, names in _of(named, ends):
            found = True
            for dim, along in _by_rules(names, given, mesh).items():
                where = f"sharded along {' and '.join(map(repr, along))}" if along else "not sharded"
                yield Restriction(end, partial(_lies, dim, along), f"{where} in dimension {dim}, {names[dim]!r}")
        if not found:
            raise ShardingError(f"no leaf has logical axes; there are {', '.join(end.name for end in ends)}")

    return LogicalAxes("logical_axes", restrictions, named=named, given=given)


def _lies(dim: int, along: Axes, dims: Dims) -> bool:
    return dims[dim] == along


def _of(named: tuple[tuple[re.Pattern[str], Names], ...], ends: Iterable[End]) -> Iterator[tuple[End, Names]]:
    """The ends that have names, with these."""
    for end in ends:
        names = next((names for glob, names in named if glob.fullmatch(end.name)), None)
        if names is None:
            continue
        told = [name for name in names if name is not None]
        if len(names) != end.type.rank or len({*told}) < len(told):
            raise ShardingError(f"{end.name} ({end.type}) is named {names}; give one name per dimension, each once")
        yield end, names


def _by_rules(names: Names, given: Sequence[tuple[str, Axes]], mesh: Mesh) -> dict[int, Axes]:
    """Per dimension that rules, None or the name of a mesh axis say something of, the axes that shard it."""
    own = [(name, (name,)) for name in names if name in mesh.axes and name not in dict(given)]
    found: dict[int, Axes] = {dim: () for dim, name in enumerate(names) if name is None}
    taken: set[str] = set()
    for name, axes in (*given, *own):
        dim = names.index(name) if name in names else -1
        if dim >= 0 and dim not in found and not taken.intersection(axes):
            found[dim] = tuple(axis for each in axes for axis in checked(each, mesh))
            taken.update(axes)
    ruled = {name for name, _ in given}
    return {**found, **{dim: () for dim, name in enumerate(names) if name in ruled and dim not in found}}


def _names(names: Any) -> Names:
    entries = tuple(names)
    if not all(name is None or isinstance(name, str) for name in entries):
        raise ShardingError(f"logical axes {names!r} are not one name, or None, per dimension")
    return entries


def _is_names(tree: Any) -> bool:
    return tree is None or isinstance(tree, PartitionSpec) or (
        isinstance(tree, tuple) and bool(tree) and all(name is None or isinstance(name, str) for name in tree))
