"""Starting plans for the search: exchange halos whenever a value would have to be held wider than a given width.

Plans between exchanging at every step and once at the beginning differ in most of their choices, so that no local
search leads from one to the other. Each plan given here computes every value once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eggshard.planner.encoding.bounding import width_of
from eggshard.planner.encoding.encode import Computed, Encoding, Widened
from eggshard.planner.encoding.windows import WindowDemand
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement
from eggshard.reshard.window_routes import contains, home
from eggshard.selection.problem import Choice


def schedules(
    demand: WindowDemand, out: Encoding, choices: list[list[Choice]], mesh: Mesh
) -> Iterator[dict[int, int]]:
    """Selections of the classes that take part in windows, one for each width that nothing exceeds without need."""
    widths = {width_of(p) for made in demand.made.values() for p in made}
    for width in sorted({-1, *widths}):
        yield _Schedule(demand, out, choices, mesh, width).chosen


class _Schedule:
    """One plan, consumers first: what is needed of a value decides where it is computed, and that what it needs."""

    def __init__(self, demand: WindowDemand, out: Encoding, choices: list[list[Choice]], mesh: Mesh,
                 width: int):
        self.demand, self.out, self.choices, self.mesh, self.width = demand, out, choices, mesh, width
        self.chosen: dict[int, int] = {}
        self.needed: dict[int, dict[Placement, None]] = {}
        for c, placement in demand.outputs:
            self._need(c, placement)
        for group in demand.order:
            if group in self.needed:
                self._place(group, list(self.needed[group]))

    def _need(self, cls: int, placement: Placement) -> None:
        views = self.out.views
        self.needed.setdefault(views.group[cls], {})[views.to_core(cls, placement)] = None

    def _place(self, group: int, needed: Sequence[Placement]) -> None:
        """Compute a value at the bounding window of what is needed where that is narrow enough, else on tiles.

        What looks at neighbours is computed wide: its operand is exchanged, of which there may be fewer.
        """
        type_, windows = self.out.views.core_type(group), self.out.windows.get(group, {})
        beyond = [p for p in needed if p in windows]
        bounding_window = next((p for p in self.demand.made.get(group, ())
                     if beyond and all(contains(self.mesh, type_.shape, p, q) for q in beyond)), None)
        options = [home(self.mesh, type_.shape, needed[0])]
        if bounding_window is not None and all(contains(self.mesh, type_.shape, bounding_window, q) for q in needed):
            options += [self.demand.narrowest(group, bounding_window), bounding_window]
            if width_of(bounding_window) <= self.width or self.demand.reaches(group):
                options.reverse()
        found = next(((p, s) for p in options if (s := self._cheapest(group, p)) is not None), None)
        if found is None:
            return
        target, self.chosen[group] = found
        parts: dict[int, list[Placement]] = {}
        for p in beyond:
            parts.setdefault(windows[p][0], []).append(p)
        main = windows[bounding_window][0] if bounding_window is not None else -1
        corners = bounding_window is not None and (main in parts or target == bounding_window)
        if bounding_window is not None and corners:
            parts[main] = [bounding_window]
        for number, users in parts.items():
            source = bounding_window if bounding_window is not None and corners and number != main else target
            self._hold(type_.shape, number, users, source)
        tag = self.choices[group][self.chosen[group]].tag
        if isinstance(tag, Computed):
            node = self.demand.graph.classes[tag.cls].nodes[tag.node]
            for child, placement in zip(node.children, tag.strategy.operands, strict=True):
                self._need(child, placement)

    def _cheapest(self, group: int, placement: Placement) -> int | None:
        """The cheapest choice that computes a value at a placement by a node that takes part, or has it as an input."""
        number = self.out.index[group].get(placement)
        options = [(choice.cost, i) for i, choice in enumerate(self.choices[group])
                   if choice.out == number and self._takes_part(choice)]
        return min(options)[1] if options else None

    def _takes_part(self, choice: Choice) -> bool:
        tag = choice.tag
        return isinstance(tag, Computed) and (not choice.needs or self.demand.node_of(tag.cls) == tag.node)

    def _hold(self, shape: tuple[int, ...], number: int, users: list[Placement], source: Placement) -> None:
        """Choose how windows are held: computed, widened from where the value is computed, or cut out of others."""
        held = self.out.placements[number]
        for i, choice in enumerate(self.choices[number]):
            tag, window = choice.tag, held[choice.out]
            if isinstance(tag, Widened) and tag.source == source and isinstance(window, Placement) and all(
                contains(self.mesh, shape, window, q) for q in users
            ):
                self.chosen[number] = i
                return
