"""Joint halo exchanges in the selection problem: choices for several values whose exchanges share collective-permutes.

Prices in the problem are additive, but halo regions of two values that go between different devices cost less in shared
permutes than apart. A joint exchange is therefore a class of its own, whose one choice needs all the values and pays
for all of them; each value's window is taken from it at no cost. Values that go between the same devices may share
permutes, too, but that saves only messages, equally everywhere, and is left to `eggshard.spmd.joining`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from eggshard.planner.encoding.bounding import grid_of
from eggshard.planner.encoding.encode import Encoding, Joined, Jointly, Widened
from eggshard.planner.encoding.windows import Held, WindowDemand
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement
from eggshard.reshard.window_routes import WindowRouter, contains, home, rewindowed
from eggshard.selection.problem import Choice
from eggshard.spmd.sharing import can_share, cheapest_joint
from eggshard.steps.window_steps import HaloExchange

#: Fraction of the separate exchanges' price that a joint exchange must save, so that rounding is no reason.
SAVING = 1e-9


class _Wide(NamedTuple):
    """A value's window, held by a class of the problem, and the exchange that makes it of the value's tiles."""

    group: int
    number: int
    source: Placement
    target: Placement
    step: HaloExchange


class JointExchanges:
    """The joint exchanges of one graph's values, offered where sharing makes them cheaper."""

    def __init__(self, out: Encoding, choices: list[list[Choice]], demand: WindowDemand, mesh: Mesh,
                 router: WindowRouter, held: Sequence[tuple[int, int, Held]]):
        self.out, self.choices, self.demand, self.mesh, self.router = out, choices, demand, mesh, router
        self._narrowest: dict[int, list[_Wide]] = {}
        #: What each joint exchange saves, its class, and per window's class the choice alone and the choice from it.
        self._offered: list[tuple[float, int, dict[tuple[int, int], int]]] = []
        for group, number, part in held:
            found = [w for p in self._apart(group, part) if (w := self._widening(group, number, p)) is not None]
            self._narrowest.setdefault(group, []).extend(found)

    def offer(self) -> None:
        """Add the classes and choices."""
        if sum(map(len, self._narrowest.values())) < 2:
            return
        seen: set[frozenset[tuple[int, Placement]]] = set()
        for together in (*self._of_values(), *self._of_operands()):
            lanes: dict[object, dict[tuple[int, Placement], _Wide]] = {}
            for wide in together:
                lane = wide.step.over, self.out.views.core_type(wide.group).dtype
                lanes.setdefault(lane, {})[wide.number, wide.target] = wide
            for members in lanes.values():
                key = frozenset(members)
                if len(members) > 1 and key not in seen:
                    seen.add(key)
                    self._add(list(members.values()))

    def joined(self, seed: Mapping[int, int]) -> dict[int, int]:
        """A selection with joint exchanges instead of the same windows made one by one, the most saving ones first."""
        out = dict(seed)
        for _, joint, taken in sorted(self._offered, key=lambda offered: -offered[0]):
            if all(out.get(number) == alone for number, alone in taken):
                out[joint] = 0
                out.update({number: together for (number, _), together in taken.items()})
        return out

    def _of_values(self) -> Iterator[Sequence[_Wide]]:
        """The windows of a value that lie apart: of one grid, and of all."""
        for found in self._narrowest.values():
            grids: dict[object, list[_Wide]] = {}
            for wide in found:
                grids.setdefault(grid_of(wide.target), []).append(wide)
            yield from grids.values()
            yield found

    def _of_operands(self) -> Iterator[Sequence[_Wide]]:
        """What an op needs of its operands, or of what those are cut out of."""
        group, nodes = self.out.views.group, self.demand.nodes
        for c in nodes:
            children = {*nodes[c][1].children}
            if not any(group[a] in self._narrowest or (a in nodes and nodes[a][2].windowed) for a in children):
                continue
            for placement in self.demand.at_wanted(c):
                for needs in self._needs(c, placement):
                    yield [w for need in needs if (w := self._window(*need)) is not None]
                    yield list(self._cut_out_of(needs))

    def _cut_out_of(self, needs: Sequence[tuple[int, Placement]]) -> Iterator[_Wide]:
        """The windows behind an op's operands, by way of ops that look along them and send nothing themselves."""
        stack, seen = list(reversed(needs)), set[tuple[int, Placement]]()
        while stack:
            cls, placement = need = stack.pop()
            if need in seen:
                continue
            seen.add(need)
            if cls in self.demand.nodes and self.demand.nodes[cls][2].windowed:
                stack.extend(reversed(next(self._needs(cls, placement), [])))
            elif (wide := self._window(cls, placement)) is not None:
                yield wide

    def _needs(self, c: int, placement: Placement) -> Iterator[list[tuple[int, Placement]]]:
        children = self.demand.nodes[c][1].children
        for strategy in self.demand.strategies(c, placement):
            yield list(zip(children, strategy.operands, strict=True))

    def _window(self, cls: int, placement: Placement) -> _Wide | None:
        """The narrowest bounding window that holds a class's window; None without one, or if it takes several steps."""
        group, core = self.out.views.group[cls], self.out.views.to_core(cls, placement)
        shard = self.out.windows.get(group, {}).get(core)
        if shard is None:
            return None
        shape = self.out.views.core_type(group).shape
        return next((w for w in self._narrowest.get(group, ())
                     if w.number == shard[0] and contains(self.mesh, shape, w.target, core)), None)

    def _apart(self, group: int, part: Held) -> list[Placement]:
        """Return the bounding windows that contain no other one of the same grid."""
        shape, out = self.out.views.core_type(group).shape, list[Placement]()
        for p in part.bounding_windows:
            if not any(grid_of(p) == grid_of(q) and contains(self.mesh, shape, p, q) for q in out):
                out.append(p)
        return out

    def _widening(self, group: int, number: int, target: Placement) -> _Wide | None:
        type_ = self.out.views.core_type(group)
        source = home(self.mesh, type_.shape, target)
        steps = rewindowed(self.mesh, type_.shape, source, target)
        if steps is None or len(steps) != 1 or not isinstance(steps[0][0], HaloExchange):
            return None
        wide = _Wide(group, number, source, target, steps[0][0])
        return wide if any(self._widens(wide, choice) for choice in self.choices[number]) else None

    def _widens(self, wide: _Wide, choice: Choice) -> bool:
        """Whether a choice makes the window of the value's tiles, alone."""
        tag, target = choice.tag, self.out.placements[wide.number][choice.out]
        return isinstance(tag, Widened) and tag.source == wide.source and target == wide.target

    def _add(self, members: Sequence[_Wide]) -> None:
        types = [w.source.local_type(self.out.views.core_type(w.group)) for w in members]
        steps = [w.step for w in members]
        if not can_share(self.mesh, steps, types):
            return
        price = self.router.price
        action = cheapest_joint(self.mesh, steps, types, price)
        cost = price(action, *types)
        apart = sum(price(s, t) for s, t in zip(steps, types, strict=True))
        if not cost < apart * (1 - SAVING):
            return
        needs = tuple(dict.fromkeys((w.group, self.out.index[w.group][w.source]) for w in members))
        joint, targets = len(self.choices), tuple(w.target for w in members)
        tag = Jointly(tuple((w.group, w.source, w.target) for w in members), action.shared)
        self.out.add([targets])
        self.choices.append([Choice(0, cost, needs, tag)])
        taken = {}
        for i, w in enumerate(members):
            alone = next(k for k, choice in enumerate(self.choices[w.number]) if self._widens(w, choice))
            taken[w.number, alone] = len(self.choices[w.number])
            self.choices[w.number].append(
                Choice(self.out.index[w.number][w.target], 0.0, ((joint, 0),), Joined(w.group, i))
            )
        self._offered.append((apart - cost, joint, taken))
