"""The state space of resharding: placements that a route may pass through, and the conversions between pairs of them.

It depends on the mesh and on how sizes divide, hardly on the tensor: tensors whose sizes all axes divide share one
space of states, whatever their sizes are. So it is computed once, vectorised over all pairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import permutations
from typing import NamedTuple

import numpy as np

from eggshard.program.mesh import Mesh
from eggshard.program.placement import tile_size
from eggshard.reshard.conversions import Kind
from eggshard.steps.steps import Action

#: Axes of one dimension, major to minor.
AxisList = tuple[str, ...]
#: The most pieces from which an exchange makes up a shard (`python -m bench reshard exhaustive`).
PIECES = 64
#: Size of a batch of counted exchanges, in pairs of states times devices.
_TOGETHER = 1 << 19
#: Number of devices of a large mesh that are sampled first, and the stride between them, which varies all axes.
_SAMPLE, _STRIDE = 64, 67


class State(NamedTuple):
    """A placement without its tiles: axes per active dimension, partial axes in mesh order, and their monoid."""

    axes: tuple[AxisList, ...]
    partial: AxisList = ()
    monoid: str = ""


class Class(NamedTuple):
    """Conversions of one price, with one of them to stand for all.

    kind: None for exchanges. ``over``: the changed axes, and ``cell``, ``cells``, ``rounds`` (`BoxExchange`; the
    cell's elements are counted in the space's sizes) are of exchanges only.
    """

    source: int
    target: int
    kind: Kind | None
    over: AxisList = ()
    cell: int = 0
    cells: int = 0
    rounds: int = 0


class StateSpace:
    """States over a mesh for a tensor of ``sizes``, with their one-step conversions.

    kind ``[S, S]``: the collective that leads from one state to the other (`Kind`).
    collectives, exchanges: price classes; collective_class, exchange_class ``[S, S]``: their numbers, -1 for none.
    cut: some exchanges take more rounds than are considered.
    """

    def __init__(self, mesh: Mesh, sizes: tuple[int, ...], states: Sequence[State], max_rounds: int):
        self.mesh, self.sizes, self.max_rounds = mesh, sizes, max_rounds
        self.states = tuple(states)
        self.number = {state: i for i, state in enumerate(self.states)}
        self._axes = [a for a, n in mesh.axes.items() if n > 1]
        self._bit = {a: 1 << i for i, a in enumerate(self._axes)}
        self._lists = sorted({axes for s in self.states for axes in s.axes}, key=lambda a: (len(a), a))
        row = {axes: i for i, axes in enumerate(self._lists)}
        rank = len(sizes)
        self._code = np.array([[row[a] for a in s.axes] for s in self.states], int).reshape(len(self.states), rank).T
        self._shards = np.array([mesh.count(a) for a in self._lists], int)
        self._tile = np.array([[tile_size(n, int(c), mesh.size) for c in self._shards] for n in sizes], int)
        self._tile = self._tile.reshape(rank, len(self._lists))
        self.even = bool((self._tile * self._shards == np.array(sizes).reshape(rank, 1)).all())
        #: Per dimensions of the tensor and class of collectives, its action where no size shows in it.
        self.shapeless: dict[tuple[tuple[int, ...], int], Action] = {}
        self.kind = self._kinds()
        self.collectives, self.collective_class = self._collectives()
        self.cut = False
        self.exchanges, self.exchange_class = self._exchanges()

    @cached_property
    def _prefix(self) -> np.ndarray:
        """``[L, L]``: whether list a is a prefix of list b."""
        return np.array([[b[: len(a)] == a for b in self._lists] for a in self._lists])

    def _pairs(self, dim: int, table: np.ndarray) -> np.ndarray:
        """A table over pairs of axis lists, at this dimension of all pairs of states."""
        code = self._code[dim]
        out: np.ndarray = table.take(code, axis=0).take(code, axis=1)
        return out

    def _mask(self, axes: Sequence[str]) -> int:
        return sum(self._bit.get(a, 0) for a in axes)

    @cached_property
    def _strides(self) -> np.ndarray:
        """``[S, axes]``: which dimension an axis cuts and at which stride, as one number; 0 where it cuts none."""
        rank = len(self.sizes)
        out = np.zeros((len(self.states), len(self._axes)), np.int64)
        for i in range(rank):
            table = np.zeros((len(self._lists), len(self._axes)), np.int64)
            for row, axes in enumerate(self._lists):
                stride = int(self._tile[i, row])
                for a in reversed(axes):
                    if a in self._bit:
                        table[row, self._axes.index(a)] = stride * rank + i + 1
                    stride *= self.mesh.axes[a]
            out += table[self._code[i]]
        return out

    @cached_property
    def _over(self) -> np.ndarray:
        """``[S, S]``: bits of the axes that data must cross (`conversions.changed_axes`)."""
        out = np.zeros((len(self.states),) * 2, np.int64)
        for i, column in enumerate(self._strides.T):
            out |= (column[:, None] != column).astype(np.int64) << i
        return out

    @cached_property
    def _partial(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Per state: bits of partial axes, of sharded axes, and a number for the monoid."""
        names = sorted({s.monoid for s in self.states})
        partial = np.array([self._mask(s.partial) for s in self.states])
        sharded = np.array([self._mask([a for axes in s.axes for a in axes]) for s in self.states])
        return partial, sharded, np.array([names.index(s.monoid) for s in self.states])

    def _kinds(self) -> np.ndarray:
        count = len(self.states)
        finer, coarser, either, as_many, same = (np.ones((count, count), bool) for _ in range(5))
        for i, tile in enumerate(self._tile):
            total = tile * self._shards
            # Tiles nest where the boundaries of the coarser ones are boundaries of the finer ones.
            nested = self._prefix & ((self._shards == 1)[:, None] | (total[:, None] == total))
            finer &= self._pairs(i, nested)
            coarser &= self._pairs(i, nested.T)
            either &= self._pairs(i, nested | nested.T)
            as_many &= self._pairs(i, self._shards[:, None] == self._shards)
            code = self._code[i]
            same &= code[:, None] == code
        partial, sharded, monoid = self._partial
        p, q = partial[:, None], partial
        alike = (p == q) & (monoid[:, None] == monoid)
        fewer = (p & q == q) & (p != q) & ((q == 0) | (monoid[:, None] == monoid))
        taken = sharded & ~sharded[:, None]
        other = ~np.eye(count, dtype=bool)
        kind = np.zeros((count, count), np.int8)
        kind[alike & as_many & other] = Kind.PERMUTE
        kind[alike & either & (sharded[:, None] == sharded) & ~as_many] = Kind.ALL_TO_ALL
        kind[alike & finer & other] = Kind.SLICE
        kind[alike & coarser & other] = Kind.ALL_GATHER
        kind[alike & as_many & (self._over == 0) & other] = Kind.RELABEL
        kind[fewer & same] = Kind.ALL_REDUCE
        kind[fewer.T & same] = Kind.KEEP_FIRST
        kind[fewer & finer & ~same & (taken == p & ~q)] = Kind.REDUCE_SCATTER
        return kind

    @cached_property
    def regrouping(self) -> np.ndarray:
        """``[S, S]``: whether it is an all-to-all in which axes from one dimension do not all go to one other, or axes
        from several meet in one."""
        out = np.zeros(self.kind.shape, bool)
        for p, q in np.argwhere(self.kind == Kind.ALL_TO_ALL).tolist():
            pairs = list(zip(self.states[p].axes, self.states[q].axes, strict=True))
            arriving = sorted(b[len(a) :] for a, b in pairs if len(b) > len(a))
            out[p, q] = arriving != sorted(a[len(b) :] for a, b in pairs if len(a) > len(b))
        return out

    def _elements(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Elements of a shard ``[S]``, and of a collective's operand and result ``[S, S]``, padding included."""
        count = len(self.states)
        local, before, after = np.ones(count, np.int64), *(np.ones((count, count), np.int64) for _ in range(2))
        for i, tile in enumerate(self._tile):
            local *= tile[self._code[i]]
            # A split tile is padded to the sum of its parts; a gathered one has their sum before it is cut.
            parts = self._shards[None, :] // self._shards[:, None] * tile
            up = np.where(self._prefix & (self._shards[:, None] < self._shards), parts, tile[:, None])
            down = np.where(self._prefix & (self._shards[:, None] < self._shards), parts, tile[:, None]).T
            before *= self._pairs(i, up)
            after *= self._pairs(i, down)
        return local, before, after

    def _collectives(self) -> tuple[list[Class], np.ndarray]:
        source, target = np.nonzero(self.kind)
        kind = self.kind[source, target].astype(np.int64)
        local, before, after = self._elements()
        partial, sharded, monoid = self._partial
        moved = self._over[source, target] * (kind != Kind.SLICE)
        moved = np.where(np.isin(kind, (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER)),
                         partial[source] & ~partial[target], moved)
        columns = [kind, moved, monoid[source], local[source], before[source, target], local[target],
                   after[source, target]]
        copies = np.isin(kind, (Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL))
        first, number = _classes([*columns, *(copies * column for column in self._copied(source, target))])
        out = np.full(self.kind.shape, -1, np.int32)
        out[source, target] = number
        return [Class(int(source[i]), int(target[i]), Kind(int(kind[i]))) for i in first], out

    def _copied(self, source: np.ndarray, target: np.ndarray) -> Iterator[np.ndarray]:
        """Columns over pairs of states that say which local copies go with a move (`steps.moves`): the dimensions that
        grow and those that shrink, and of the last of each the shards' sizes along it and along all before it."""
        rank = len(self.sizes)
        if not rank:
            return
        sizes = np.array([tile[code] for tile, code in zip(self._tile, self._code, strict=True)])
        shards = self._shards[self._code]
        outer = np.cumprod(np.vstack([np.ones((1, len(self.states)), np.int64), sizes]), axis=0)
        for changed in (shards[:, target] < shards[:, source], shards[:, target] > shards[:, source]):
            yield (1 << np.arange(rank)) @ changed
            last = rank - 1 - changed[::-1].argmax(axis=0)
            for table in (sizes, outer):
                for state in (source, target):
                    yield np.where(changed.any(axis=0), table[last, state], 0)

    def _exchanges(self) -> tuple[list[Class], np.ndarray]:
        partial, _, monoid = self._partial
        # Slices, gathers and all-to-alls receive what is missing and no more, in one message.
        open_ = ~np.isin(self.kind, (Kind.RELABEL, Kind.SLICE, Kind.ALL_GATHER, Kind.ALL_TO_ALL))
        open_ &= (partial[:, None] == partial) & (monoid[:, None] == monoid) & ~np.eye(len(self.states), dtype=bool)
        out = np.full(self.kind.shape, -1, np.int32)
        if not open_.any():
            return [], out
        source, target, cell, cells, rounds = self._outlines(*np.nonzero(open_))
        local = np.prod([tile[code] for tile, code in zip(self._tile, self._code, strict=True)], axis=0, initial=1)
        over = self._over[source, target]
        # A permute of whole shards is one message; pieces are worth more only if they are fewer bytes.
        better = (self.kind[source, target] != Kind.PERMUTE) | (cell * cells < local[source])
        source, target, cell, cells, rounds, over = (
            a[better] for a in (source, target, cell, cells, rounds, over)
        )
        first, number = _classes([over, cell * cells, rounds, local[source] + local[target]])
        out[source, target] = number
        return [
            Class(int(source[i]), int(target[i]), None, tuple(a for a in self._axes if self._bit[a] & over[i]),
                  int(cell[i]), int(cells[i]), int(rounds[i]))
            for i in first
        ], out

    def exchange(self, source: int, target: int) -> Class:
        """The exchange from one state to the other: of its class, in cells of its own."""
        found: Class = self.exchanges[self.exchange_class[source, target]]
        tiles = ((int(tile[code[source]]), int(tile[code[target]]))
                 for tile, code in zip(self._tile, self._code, strict=True))
        cell = math.prod(max(1, math.gcd(*pair)) for pair in tiles)
        return found._replace(source=source, target=target, cell=cell, cells=found.cell * found.cells // cell)

    def _outlines(self, source: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, ...]:
        """The exchanges of few enough rounds among these pairs: source, target, cell elements, cells, rounds."""
        grids = [np.maximum(1, np.gcd(tile[:, None], tile)) for tile in self._tile]
        size = len(self._lists)
        pair = self._code[:, source] * size + self._code[:, target]
        cell, pieces = np.ones((2, len(source)), np.int64)
        for row, tile, grid in zip(pair, self._tile, grids, strict=True):
            cell *= grid.take(row)
            pieces *= (tile // grid).take(row)
        few = pieces <= PIECES
        self.cut = not few.all()
        source, target, cell, pair = source[few], target[few], cell[few], pair[:, few]
        # Dimensions of one size change places freely: work out one pair of each kind.
        alike = np.sort(pair, axis=0) if len(set(self.sizes)) == 1 else pair
        first, kind = _classes(list(alike))
        cells, rounds = self._rounds(source[first], target[first], pair[:, first], grids)
        cells, rounds = cells[kind], rounds[kind]
        few = rounds <= self.max_rounds
        self.cut |= not few.all()
        return tuple(a[few] for a in (source, target, cell, cells, rounds))

    def _rounds(self, source: np.ndarray, target: np.ndarray, pair: np.ndarray, grids: list[np.ndarray]
                ) -> tuple[np.ndarray, np.ndarray]:
        """Cells that the busiest device receives, and permutes, of the exchanges between these states.

        Where all tiles are full, devices need as much, and some device has nothing of it unless tiles are nested. What
        a shard's holders send, each, is what a device needs less what they keep on average: no more than is received.
        """
        held, needed, kept = np.ones((3, len(source)), np.int64)
        full = np.ones(len(source), bool)
        for i, (row, grid) in enumerate(zip(pair, grids, strict=True)):
            tile = self._tile[i]
            whole = tile * self._shards == self.sizes[i]
            full &= (whole[:, None] & whole).take(row)
            held *= (tile[:, None] // grid).take(row)
            needed *= (tile // grid).take(row)
            kept *= np.where(self._prefix | self._prefix.T, np.minimum(tile[:, None], tile) // grid, 0).take(row)
        cells = needed - kept
        rounds = cells.copy()
        uneven = np.nonzero(~full)[0]
        if not len(uneven):
            return cells, rounds
        some = np.arange(min(self.mesh.size, _SAMPLE)) * _STRIDE % self.mesh.size
        _, wanted, both = self._per_device(pair[:, uneven], grids, some)
        cells[uneven] = rounds[uneven] = (wanted - both).max(axis=1, initial=0)
        # What some device receives is the most where that is all of a shard, and no holder can send more.
        shards = np.prod(self._shards[self._code], axis=0, initial=1)
        most = (cells == needed) & (held * shards[source] <= needed * shards[target])
        uneven = uneven[(cells[uneven] <= self.max_rounds) & ~most[uneven]]
        step = max(1, _TOGETHER // self.mesh.size)
        for rows in (uneven[i : i + step] for i in range(0, len(uneven), step)):
            cells[rows], rounds[rows] = self._counted(source[rows], target[rows], pair[:, rows], grids, shards)
        return cells, rounds

    def _counted(self, source: np.ndarray, target: np.ndarray, pair: np.ndarray, grids: list[np.ndarray],
                 shards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Count, device by device, the most cells that a device receives and the rounds that the exchange takes.

        shards: the number of distinct shards of each state.
        """
        held, needed, both = self._per_device(pair, grids, np.arange(self.mesh.size))
        cells = (needed - both).max(axis=1, initial=0)
        copies = self.mesh.size // shards[target]
        rounds = cells.copy()
        for state in np.unique(source):
            rows = np.nonzero(source == state)[0]
            team = self._holders(int(state)).reshape(shards[state], -1)
            # The sends of a shard: each of its cells goes to all that need it, but for holders that keep it.
            sends = held[rows][:, team[:, 0]] * copies[rows, None] - both[rows][:, team].sum(axis=2)
            rounds[rows] = np.maximum(cells[rows], -(-sends.max(axis=1) // team.shape[1]))
        return cells, rounds

    def _holders(self, state: int) -> np.ndarray:
        """The devices, sorted by the shard that they hold."""
        return np.argsort(self.mesh.index([a for axes in self.states[state].axes for a in axes]), kind="stable")

    def _per_device(self, pair: np.ndarray, grids: list[np.ndarray], devices: np.ndarray) -> list[np.ndarray]:
        """``[P, devices]``: cells that devices hold, need, and have in common, for pairs of states."""
        out = [np.ones((pair.shape[1], 1), np.int64) for _ in range(3)]
        for (start, end), row, grid in zip(self._ranges, pair, grids, strict=True):
            lists, place = np.unique(row, return_inverse=True)
            first, second = np.divmod(lists, len(self._lists))
            start, end = start[:, devices], end[:, devices]
            low, high = np.maximum(start[first], start[second]), np.minimum(end[first], end[second])
            held = (end - start)[first], (end - start)[second], np.maximum(high - low, 0)
            cell = grid.take(lists)[:, None]
            out = [a * (-(-n // cell)).take(place, axis=0) for a, n in zip(out, held, strict=True)]
        return out

    @cached_property
    def _ranges(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Per dimension ``[L, devices]`` twice: from which index to which a device holds it, for each list of axes."""
        index = np.stack([self.mesh.index(axes) for axes in self._lists])
        out = []
        for n, tile in zip(self.sizes, self._tile, strict=True):
            start = index * tile[:, None]
            out.append((np.minimum(start, n), np.minimum(start + tile[:, None], n)))
        return out


def _classes(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The first row of each class of equal rows, and each row's class."""
    key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        span = int(column.max(initial=0)) + 1
        if span * (int(key.max(initial=0)) + 1) >= 1 << 62:
            key = np.unique(key, return_inverse=True)[1]
            values, column = np.unique(column, return_inverse=True)
            span = len(values)
        key = key * span + column
    _, first, number = np.unique(key, return_index=True, return_inverse=True)
    return first, number.reshape(-1)


def axis_lists(axes: Sequence[str]) -> tuple[AxisList, ...]:
    """All ordered lists of distinct axes, short ones first."""
    return tuple(p for k in range(len(axes) + 1) for p in permutations(axes, k))


def combinations(
    choices: Sequence[Sequence[AxisList]], taken: frozenset[str] = frozenset()
) -> Iterator[tuple[AxisList, ...]]:
    """All tuples with one list of each dimension's choices that use no axis twice, nor a taken one."""
    if not choices:
        yield ()
        return
    for axes in choices[0]:
        if taken.isdisjoint(axes):
            for rest in combinations(choices[1:], taken.union(axes)):
                yield (axes, *rest)


@lru_cache(maxsize=256)
def all_states(
    choices: tuple[tuple[AxisList, ...], ...], partials: tuple[tuple[AxisList, str], ...]
) -> tuple[State, ...]:
    """All states with one of the choices in each dimension and one of these partial axes and monoids."""
    return tuple(
        State(axes, partial, monoid)
        for partial, monoid in partials
        for axes in combinations(choices, frozenset(partial))
    )


@lru_cache(maxsize=256)
def state_space(mesh: Mesh, sizes: tuple[int, ...], states: tuple[State, ...], max_rounds: int) -> StateSpace:
    """The space of these states, remembered."""
    return StateSpace(mesh, sizes, states, max_rounds)


def count_states(axes: int, rank: int) -> int:
    """The number of states over all lists of so many axes, none of them partial."""
    return sum(math.perm(axes, k) * (math.comb(k + rank - 1, k) if rank else k == 0) for k in range(axes + 1))
