"""`auto`: where the arguments and results of a function are best put."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding

from eggshard.api import Plan
from eggshard.frontends.jax.calling_convention import JaxCallingConvention, Leaf
from eggshard.jitting import jit
from eggshard.program.sharding import AUTO
from eggshard.tables import Shown, render, size


class Placed(NamedTuple):
    """One leaf of the arguments or results: its name, type and spec, and the bytes of it that a device holds.

    carried: of a result, the name of the argument that it becomes in the next call.
    """

    name: str
    type: str
    spec: str
    held: int
    carried: str = ""


@dataclass(frozen=True, repr=False)
class Shardings(Shown):
    """Where a function's arguments and results are to lie, and the plan that this makes possible.

    in_shardings, out_shardings: like the positional arguments and like the results, as `jax.jit` takes them. leaves:
    one by one. plan: of the function whose arguments and results lie so. bound: seconds that no plan undercuts, of
    those that the rewrites derive, wherever its arguments and results lie evenly by whole axes in mesh order, but for
    what is `left_out` of that, in words; None where none is known.
    """

    in_shardings: Any
    out_shardings: Any
    leaves: tuple[Placed, ...]
    plan: Plan
    bound: float | None
    left_out: tuple[str, ...] = ()

    @property
    def gap(self) -> float | None:
        """The part of the plan's cost by which another choice may be cheaper, of those that the bound is of; None where
        it is not known."""
        cost = self.plan.cost.total
        return None if self.bound is None else max(0.0, 1 - self.bound / cost) if cost > 0 else 0.0

    def __str__(self) -> str:
        from rich.table import Table

        total, unit = self.plan.cost.total, self.plan.unit
        head = [f"shardings of {self.plan.program.name} on {dict(self.plan.mesh.axes)}: {unit.text(total)}"]
        if self.gap is not None:
            head.append(f"within {100 * self.gap:.2f} % of any other choice by whole axes"
                        + (f" (not counting {'; '.join(self.left_out)})" if self.left_out else ""))
        table = Table("leaf", "type", "sharding", "per device", "fed back as", box=None, pad_edge=False)
        for row in self.leaves:
            table.add_row(row.name, row.type, row.spec, size(row.held), row.carried)
        return render(*head, table)


def auto(
    fun: Callable[..., Any], *args: Any, in_shardings: Any = AUTO, out_shardings: Any = AUTO, mesh: Any = None,
    carry: Mapping[int, int] | None = None, **options: Any,
) -> Shardings:
    """Choose where the arguments and results of a function lie, and plan the function for that.

    args: of the function, arrays or `jax.ShapeDtypeStruct`; of a static argument its value. in_shardings,
    out_shardings: trees as of `jax.jit`, in which `eggshard.AUTO` stands for what is to be chosen, also as an entry of
    a ``PartitionSpec``. mesh, carry: as of `jit`, which runs a function so: ``eggshard.jit(fun, in_shardings=AUTO,
    out_shardings=AUTO, mesh=mesh)``. options: of `jit`.

    The choice is of even placements by whole axes, by the cost model, with memory where plans cost about the same. What
    is fed back (parameters, the state of an optimizer) lies where it is taken.

    MeshError where no mesh is given, ShardingError for trees that do not fit; else as `optimize`.
    """
    function = jit(fun, in_shardings=in_shardings, out_shardings=out_shardings, mesh=mesh, carry=carry, **options)
    plan, chosen = function.plan(*args), function.chosen(*args)
    convention = JaxCallingConvention.to_call(plan.program, plan.calling_convention)
    back = {o: convention.argument_name(i) for o, i in chosen.carried.items()}
    paths = jax.tree_util.tree_flatten_with_path(jax.tree.unflatten(convention.out_tree, range(len(chosen.results))))[0]
    leaves = [_placed(convention.argument_name(i), leaf, s) for i, (leaf, s) in enumerate(
        zip(convention.arguments, chosen.arguments, strict=True))]
    leaves += [_placed(f"result{jax.tree_util.keystr(path)}", leaf, s, back.get(o, "")) for o, ((path, _), leaf, s) in
               enumerate(zip(paths, convention.results, chosen.results, strict=True))]
    positional, _ = jax.tree.unflatten(convention.in_tree, chosen.arguments)
    bound = chosen.choice.bound
    return Shardings(positional, jax.tree.unflatten(convention.out_tree, chosen.results), tuple(leaves), plan,
                     min(bound, plan.cost.total) if bound > 0 else None, chosen.choice.left_out)


def _placed(name: str, leaf: Leaf, sharding: NamedSharding, carried: str = "") -> Placed:
    item = 4 if leaf.key or leaf.dtype == jax.dtypes.float0 else np.dtype(leaf.dtype).itemsize
    held = math.prod(sharding.shard_shape(leaf.shape)) * item
    return Placed(name, f"{leaf.dtype}{list(leaf.shape)}", str(sharding.spec), held, carried)
