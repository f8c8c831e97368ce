"""`auto`: where the arguments and results of a function are best put."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding

from eggshard.api import Plan
from eggshard.costmodel.units import Unit
from eggshard.engines.jax.arguments import described
from eggshard.engines.jax.open_shardings import leaves_of
from eggshard.engines.jax.specs import trimmed
from eggshard.errors import CostModelError, ShardingError
from eggshard.frontends.jax.calling_convention import JaxCallingConvention, Leaf
from eggshard.jitting import jit
from eggshard.planner.choosing.meshes import Tried, shape
from eggshard.program.sharding import AUTO
from eggshard.tables import Shown, render, size
from eggshard.tactics import Restriction, Tactic
from eggshard.tactics.logical import LogicalAxes, Rule

#: What fixes leaves whose shardings are given.
STATED = "stated"
#: How many meshes are shown.
SHOWN = 6


class Placed(NamedTuple):
    """One leaf of the arguments or results: its name, type and spec, and the bytes of it that a device holds.

    carried: of a result, the name of the argument that it becomes in the next call. fixed: what fixes where it lies, or
    leaves fewer places to it: ``stated``, or tactics by their names.
    """

    name: str
    type: str
    spec: str
    held: int
    carried: str = ""
    fixed: tuple[str, ...] = ()


class Elsewhere(NamedTuple):
    """A leaf's spec, another one, and what the plan costs more with that (`Plan.unit`), or less where it is negative.

    other: "" where the leaf can lie nowhere else. whole: what the plan costs with the leaf as it is.
    """

    name: str
    spec: str
    other: str
    more: float
    whole: float

    @property
    def part(self) -> str:
        """How much more that is, in percent."""
        return f"{100 * self.more / self.whole if self.whole else 0.0:+.2f} %"

    def __str__(self) -> str:
        if not self.other:
            return f"{self.name} is {self.spec}, and can lie nowhere else evenly by whole axes"
        return f"{self.name} is {self.spec}; elsewhere the cheapest found is {self.other}, with a cost of {self.part}"


@dataclass(frozen=True, repr=False)
class Kept(Shown):
    """Per leaf that something fixes, where it lies if it alone is open, and what the plan then costs."""

    rows: tuple[Elsewhere, ...]
    unit: Unit

    def __str__(self) -> str:
        from rich.table import Table

        if not self.rows:
            return "nothing is fixed"
        table = Table("leaf", "kept at", "if open", "cost if open", box=None, pad_edge=False)
        for row in self.rows:
            table.add_row(row.name, row.spec, row.other, f"{self.unit.text(row.whole + row.more)} ({row.part})")
        return render(f"cost with all that is fixed: {self.unit.text(self.rows[0].whole)}", table)


@dataclass(frozen=True)
class Question:
    """What `auto` is asked; its fields are `auto`'s parameters."""

    fun: Callable[..., Any]
    args: tuple[Any, ...]
    in_shardings: Any
    out_shardings: Any
    tactics: Sequence[Tactic]
    options: Mapping[str, Any]

    def answered(self) -> Shardings:
        """The choice, and the plan at it."""
        function = jit(self.fun, in_shardings=self.in_shardings, out_shardings=self.out_shardings,
                       tactics=self.tactics, **self.options)
        plan, chosen = function.plan(*self.args), function.chosen(*self.args)
        convention = JaxCallingConvention.to_call(plan.program, plan.calling_convention)
        names = convention.argument_names
        back = {o: names[i] for o, i in chosen.carried.items()}
        positional, _ = jax.tree.unflatten(convention.in_tree, chosen.arguments)
        results = jax.tree.unflatten(convention.out_tree, chosen.results)

        def fixed(name: str, spec: Any) -> tuple[str, ...]:
            return (*([STATED] if spec is not AUTO else []), *chosen.narrowing.by.get(name, ()))

        given = leaves_of(self.in_shardings, jax.tree.structure(positional), "in_shardings")
        leaves = [_placed(*row[:3], "", fixed(row[0], row[3])) for row in zip(
            names, convention.arguments, chosen.arguments, given, strict=True)]
        given = leaves_of(AUTO if self.out_shardings is None else self.out_shardings, convention.out_tree, "")
        leaves += [_placed(*row[:3], back.get(o, ""), fixed(row[0], row[3])) for o, row in enumerate(zip(
            convention.result_names, convention.results, chosen.results, given, strict=True))]
        bound, narrowing = chosen.choice.bound, chosen.narrowing
        rules = [rule for tactic in narrowing.tactics if isinstance(tactic, LogicalAxes)
                 for rule in tactic.rules(narrowing.at, plan.mesh)]
        return Shardings(positional, results, tuple(leaves), plan, min(bound, plan.cost.total) if bound > 0 else None,
                         chosen.choice.left_out, tuple(narrowing.notes), tuple(rules), chosen.meshes,
                         question=replace(self, options={**self.options, "mesh": chosen.mesh, "devices": None}))


@dataclass(frozen=True, repr=False)
class Shardings(Shown):
    """Where a function's arguments and results are to lie, and the plan that this makes possible.

    in_shardings, out_shardings: like the positional arguments and like the results, as `jax.jit` takes them. leaves:
    one by one. plan: of the function whose arguments and results lie so. bound: seconds that no plan undercuts, of
    those that the rewrites derive, wherever its arguments and results lie evenly by whole axes in mesh order, or where
    the function's own constraints have them, as far as nothing fixes them, but for what is `left_out` of that, in
    words; None where none is known. notes: what tactics could not fix. rules: of the tactic `logical_axes`, those that
    were given and found. meshes: where the mesh was chosen, too, those that were tried, the best first.
    """

    in_shardings: Any
    out_shardings: Any
    leaves: tuple[Placed, ...]
    plan: Plan
    bound: float | None
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    meshes: tuple[Tried, ...] = ()
    question: Question = field(kw_only=True, compare=False)

    @property
    def gap(self) -> float | None:
        """The part of the plan's cost by which another choice may be cheaper, of those that the bound is of; None where
        it is not known."""
        cost = self.plan.cost.total
        return None if self.bound is None else max(0.0, 1 - self.bound / cost) if cost > 0 else 0.0

    def costs_of_keeping(self) -> Kept:
        """What is kept at which cost: beside each leaf that something fixes the plan in which it alone is open.

        This takes a choice, and a plan, per leaf; one for what is fed back. Where that finds nothing cheaper, the leaf
        stays.
        """
        fixed = {row.carried or row.name: row for row in reversed(self.leaves) if row.fixed}
        found = [self._beside(row, self._opened(row)) for row in reversed(fixed.values())]
        rows = [row if row.more < 0 else row._replace(other=row.spec, more=0.0) for row in found]
        return Kept(tuple(rows), self.plan.unit)

    def why(self, name: str) -> Elsewhere:
        """The cheapest choice found in which one leaf lies elsewhere, whatever fixes it.

        name: as in `leaves`; ShardingError for another one. What is fed back, and equal layers, move together. This
        takes a choice, and a plan.
        """
        row = next((row for row in self.leaves if row.name == name), None)
        if row is None:
            raise ShardingError(f"no leaf is called {name!r}; there are {', '.join(leaf.name for leaf in self.leaves)}")
        at = dict(zip((leaf.name for leaf in self.leaves),
                      jax.tree.leaves((self.in_shardings, self.out_shardings)), strict=True))[name].spec
        moved = Tactic(f"elsewhere than {at}", lambda ends, _: [
            Restriction(end, lambda dims: trimmed(dims) != at, "there") for end in ends
            if end.name == (row.carried or name)])
        question = self._opened(row)
        found = self._beside(row, replace(question, tactics=(*question.tactics, moved)))
        return found._replace(other="") if found.other == row.spec else found

    def _opened(self, row: Placed) -> Question:
        """The question in which nothing fixes a leaf, nor what is fed back as it or by it."""
        alike = [(leaf.carried or leaf.name) == (row.carried or row.name) for leaf in self.leaves]
        question, tree = self.question, jax.tree.structure((self.in_shardings, self.out_shardings))
        results = AUTO if question.out_shardings is None else question.out_shardings
        specs = leaves_of((question.in_shardings, results), tree, "shardings")
        ins, outs = jax.tree.unflatten(tree, [
            AUTO if opened else spec for opened, spec in zip(alike, specs, strict=True)])
        names = [leaf.name for leaf, opened in zip(self.leaves, alike, strict=True) if opened]
        return replace(question, in_shardings=ins, out_shardings=outs,
                       tactics=[tactic.without(names) for tactic in question.tactics])

    def _beside(self, row: Placed, question: Question) -> Elsewhere:
        found, cost = question.answered(), self.plan.cost.total
        spec = next(leaf.spec for leaf in found.leaves if leaf.name == row.name)
        return Elsewhere(row.name, row.spec, spec, found.plan.cost.total - cost, cost)

    def __str__(self) -> str:
        from rich.table import Table

        total, unit = self.plan.cost.total, self.plan.unit
        head = [f"shardings of {self.plan.program.name} on {dict(self.plan.mesh.axes)}: {unit.text(total)}"]
        any_fixed = any(row.fixed for row in self.leaves)
        if self.gap is not None:
            head.append(f"within {100 * self.gap:.2f} % of any other choice by whole axes"
                        + (" that keeps what is fixed" if any_fixed else "")
                        + (f" (not counting {'; '.join(self.left_out)})" if self.left_out else ""))
        table = Table("leaf", "type", "sharding", "per device", "fed back as", box=None, pad_edge=False)
        table.columns[0].overflow = table.columns[4].overflow = "fold"  # names are what `why` is asked by
        if any_fixed:
            table.add_column("fixed by")
        for row in self.leaves:
            cells = [row.name, row.type, row.spec, size(row.held), row.carried]
            table.add_row(*cells, *(["\n".join(row.fixed)] if any_fixed else []))
        return render(*head, table, *self.notes, *([_mesh_table(self.meshes)] if self.meshes else []))


def auto(
    fun: Callable[..., Any], *args: Any, in_shardings: Any = AUTO, out_shardings: Any = AUTO, mesh: Any = None,
    devices: Any = None, topology: Any = None, carry: Mapping[int, int] | None = None, tactics: Sequence[Tactic] = (),
    **options: Any,
) -> Shardings:
    """Choose where the arguments and results of a function lie, and plan the function for that.

    args: of the function, arrays or `jax.ShapeDtypeStruct`; of a static argument its value. in_shardings,
    out_shardings: trees as of `jax.jit`, in which `eggshard.AUTO` stands for what is to be chosen, also as an entry of
    a ``PartitionSpec``. mesh, carry, tactics: as of `jit`, which runs a function so: ``eggshard.jit(fun,
    in_shardings=AUTO, out_shardings=AUTO, mesh=mesh)``. options: of `jit`.

    The choice is of even placements by whole axes, by the cost model, with memory where plans cost about the same. What
    is fed back (parameters, the state of an optimizer) lies where it is taken.

    mesh: `eggshard.AUTO` to choose it, too: of ``devices``, a list (by default JAX's), or a number of those that need
    not be here. Then the plan is made for a mesh without devices, which the shardings name. topology: the machine on
    whose links the mesh lies, another word for ``cost_model``.

    MeshError where no mesh is given, ShardingError for trees and tactics that do not fit, CostModelError where topology
    and cost_model differ; else as `optimize`.
    """
    if topology is not None and options.setdefault("cost_model", topology) != topology:
        raise CostModelError(
            f"topology={topology!r} and cost_model={options['cost_model']!r}: both say which machine; give one")
    # A question keeps no buffers.
    types = jax.tree.map(lambda leaf: described(leaf, None) if isinstance(leaf, jax.Array) else leaf, args)
    options = {"mesh": mesh, "devices": devices, "carry": carry, **options}
    return Question(fun, types, in_shardings, out_shardings, tactics, options).answered()


def _mesh_table(meshes: Sequence[Tried]) -> Any:
    """The best meshes, with costs over those of the first, and how many others there are."""
    from rich.table import Table

    table = Table("mesh, its last axis on the fastest links", "as chosen", "planned", "", box=None,
                  pad_edge=False)

    def over(value: float | None, first: float | None) -> str:
        return f"{value / first:.3f}" if value and first else ""

    for row in meshes[:SHOWN]:
        costs = (row.cost, meshes[0].cost), (row.planned, meshes[0].planned)
        table.add_row(shape(row.mesh), *(over(*pair) for pair in costs), row.why)
    if len(meshes) > SHOWN:
        table.add_row(f"{len(meshes) - SHOWN} others")
    return table


def _placed(name: str, leaf: Leaf, sharding: NamedSharding, carried: str, fixed: tuple[str, ...]) -> Placed:
    item = 4 if leaf.key or leaf.dtype == jax.dtypes.float0 else np.dtype(leaf.dtype).itemsize
    held = math.prod(sharding.shard_shape(leaf.shape)) * item
    return Placed(name, f"{leaf.dtype}{list(leaf.shape)}", str(sharding.spec), held, carried, fixed)
