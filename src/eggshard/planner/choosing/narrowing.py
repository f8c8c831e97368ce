"""Tactics: what leaves fewer placements to choose from where a program's inputs and outputs are open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from eggshard.errors import MeshError, ShardingError
from eggshard.planner.choosing.ends import Ends
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement
from eggshard.program.sharding import Sharding, whole_mesh
from eggshard.program.types import TensorType

#: Per dimension of a tensor the mesh axes that shard it, major to minor.
Dims = tuple[tuple[str, ...], ...]
#: How many leaves a note names.
NAMED = 3


class End(NamedTuple):
    """An argument or result of a function, as tactics see it.

    name: ``args[0]['w']`` or ``result[1]``. type: its shape and element type. carried: whether it is fed back, as
    parameters and the state of an optimizer are. Results that are fed back lie where the arguments do, and are no ends.
    """

    name: str
    type: TensorType
    carried: bool = False

    @property
    def is_result(self) -> bool:
        return self.name.startswith("result")


class Restriction(NamedTuple):
    """What is asked of where one end lies. text: the same in words, after "to be"."""

    end: End
    holds: Callable[[Dims], bool]
    text: str


@dataclass(frozen=True)
class Tactic:
    """Restrictions of ends, under the name that the tactic is written by.

    restrictions: made of all ends and the mesh; ShardingError or MeshError for what does not fit them. spared: names of
    ends that it leaves alone.
    """

    name: str
    restrictions: Callable[[Sequence[End], Mesh], Iterable[Restriction]] = field(repr=False)
    spared: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return self.name

    def on(self, ends: Sequence[End], mesh: Mesh) -> list[Restriction]:
        """The restrictions of these ends on a mesh; errors name the tactic."""
        try:
            return [asked for asked in self.restrictions(ends, mesh) if asked.end.name not in self.spared]
        except (ShardingError, MeshError) as error:
            raise type(error)(f"tactic {self}: {error}") from None

    def without(self, names: Iterable[str]) -> Tactic:
        """The tactic that leaves the ends of these names alone."""
        return replace(self, spared=self.spared.union(names))

    def settled(self, at: Mapping[End, Dims], mesh: Mesh) -> Tactic | None:
        """The tactic to choose by once more, where ends were chosen to lie so; None where it asks for no more."""
        return None


class Narrowing:
    """Tactics on the ends of one program, in order: each leaves of an end's placements those that it asks for.

    Where it would leave none, it leaves the end as it was. by: per name of an end the tactics that took placements
    away. notes: what was left as it was, in words. at: per end how it is sharded at last.
    """

    def __init__(self, tactics: Sequence[Tactic], inputs: Sequence[End | None], outputs: Sequence[End | None]):
        """inputs, outputs: as of the program; None for what no tactic is asked about."""
        self.tactics, self.inputs, self.outputs = tactics, inputs, outputs
        self.by: dict[str, tuple[str, ...]] = {}
        self.notes: list[str] = []
        self.at: dict[End, Dims] = {}

    def narrowed(self, ends: Ends, mesh: Mesh) -> Ends:
        """The ends with what the tactics leave of their placements."""
        inputs, outputs = (
            {end: [(p, dims_of(p, mesh)) for p in options] for end, options in zip(described, placed, strict=True)
             if end is not None} for described, placed in ((self.inputs, ends.inputs), (self.outputs, ends.outputs)))
        left = {**inputs, **outputs}
        for tactic in self.tactics:
            self._apply(tactic, left, whole_mesh(mesh))

        def options(end: End | None, before: Sequence[Placement]) -> Sequence[Placement]:
            return before if end is None else [p for p, _ in left[end]]

        into = tuple(map(options, self.inputs, ends.inputs))
        out = tuple(into[ends.carried[o]] if o in ends.carried else options(end, before)
                    for o, (end, before) in enumerate(zip(self.outputs, ends.outputs, strict=True)))
        return replace(ends, inputs=into, outputs=out)

    def settled(self, inputs: Sequence[Placement], outputs: Sequence[Placement], mesh: Mesh) -> Sequence[Tactic] | None:
        """The tactics to choose by once more, now that these placements were chosen; None where nothing is to be
        settled. Notes the placements."""
        pairs = zip((*self.inputs, *self.outputs), (*inputs, *outputs), strict=True)
        self.at = {end: dims_of(p, mesh) for end, p in pairs if end is not None}
        for number, tactic in enumerate(self.tactics):
            settled = tactic.settled(self.at, whole_mesh(mesh))
            if settled is not None:
                return [*self.tactics[:number], settled, *self.tactics[number + 1 :]]
        return None

    def _apply(self, tactic: Tactic, left: dict[End, list[tuple[Placement, Dims]]], mesh: Mesh) -> None:
        missed: dict[str, list[End]] = {}
        for end, holds, text in tactic.on([*left], mesh):
            kept = [option for option in left[end] if holds(option[1])]
            if not kept:
                missed.setdefault(text, []).append(end)
            elif len(kept) < len(left[end]):
                left[end] = kept
                self.by[end.name] = tuple(dict.fromkeys((*self.by.get(end.name, ()), tactic.name)))
        for text, ends in missed.items():
            named = ", ".join(f"{end.name} ({end.type})" for end in ends[:NAMED])
            named += f" and {len(ends) - NAMED} more" if len(ends) > NAMED else ""
            self.notes.append(f"tactic {tactic} left {named} as before: none of the placements left is {text}")


def dims_of(placement: Placement, mesh: Mesh) -> Dims:
    """The whole axes that shard each dimension of a placement; axes of which it has parts are not among them."""
    return tuple(tuple(a.name for a in d.axes if not a.size) for d in Sharding.from_placement(placement, mesh).dims)
