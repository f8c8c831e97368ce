"""What is held of every drawn program: results, bytes, bounds, and that names and order do not matter."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

import eggshard as es
from bench.fuzz.generate import Drawn, mesh_of
from bench.fuzz.values import Value
from bench.widening import count_as_written
from eggshard.hlo.collectives import count_collectives
from eggshard.limits import Limits
from eggshard.ops.evaluate import evaluate_program
from eggshard.planner.propagation.propagated import propagated

#: Relative error that rounding may leave in floats that were rounded, by the bits of their mantissa.
_ROUNDING = {"float64": 1e-9, "complex128": 1e-9, "float32": 1e-3, "complex64": 1e-3}
_COARSE = 0.1
#: Searches end where a plan is certified to be so near to the cheapest; two of them may end at different ones.
_SAME = Limits().gap
REFERENCE, SIMPLIFIED, MOVED = "reference", "simplified", "moved"


@dataclass(frozen=True)
class Problem:
    """kind: ``wrong``, ``crash``, ``fallback``, ``bytes``, ``bound`` or ``order``.

    No failures of ours: `REFERENCE`, where XLA, and not the plan, is wrong; `SIMPLIFIED`, where
    XLA knows what a collective would bring, such as zeros; `MOVED`, where propagation and with it the cost depend on
    the order of lines.
    """

    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


def problems(drawn: Drawn, whole: bool = False) -> list[Problem]:
    """`checked`, and nothing wrong with a program that JAX itself refuses."""
    return checked(drawn, whole) or []


def reference(drawn: Drawn) -> tuple[jax.stages.Lowered, list[np.ndarray]] | None:
    """A program as JAX lowers it, and its results under `jax.jit` without shardings; None where JAX refuses it."""
    mesh = mesh_of(drawn.mesh)
    try:
        with jax.set_mesh(mesh):
            lowered = drawn.jitted(mesh).lower(*drawn.structs())
            return lowered, [np.asarray(a) for a in jax.jit(drawn.function(constrained=False))(*drawn.arrays())]
    except Exception:  # not a program, then
        return None


def checked(drawn: Drawn, whole: bool = False) -> list[Problem] | None:
    """What is wrong with the plan of a program; None for a program that JAX itself refuses.

    whole: also plan it with its axes renamed and its lines in another order.
    """
    theirs, arrays = reference(drawn), drawn.arrays()
    if theirs is None:
        return None
    lowered, want = theirs
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", es.errors.EggshardWarning)
        try:
            plan = es.optimize(lowered)
        except Exception as error:
            return [Problem("crash", f"optimize: {_shown(error)}")]
    found = [Problem("fallback", str(w.message)) for w in said if issubclass(w.category, es.errors.EggshardWarning)]
    compiled = _Compiled(plan)
    wrong, right = [], True
    for name, run in (("simulator", plan.run), ("XLA", compiled.run)):
        try:
            got = [np.asarray(a) for a in jax.tree.leaves(run(*arrays))]
        except Exception as error:
            found.append(Problem("crash", f"{name}: {_shown(error)}"))
            right = False
            continue
        if differing := _differing(drawn.outputs, got, want):
            wrong += [f"{name}, {d}" for d in differing]
            right = right and not _differing(drawn.outputs, got, evaluate_program(plan.program, arrays))
    # Where both runs of the plan are what NumPy says of the program as it was read, the reference is in error.
    found += [Problem(REFERENCE if right else "wrong", what) for what in wrong]
    found += _figures(plan, compiled)
    if whole and not found:
        found += _order(drawn, plan)
    return found


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:300]


def _differing(values: Sequence[Value], got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> list[str]:
    found = ((v.name, _difference(v, g, w)) for v, g, w in zip(values, got, want, strict=True))
    return [f"{name}: {difference}" for name, difference in found if difference]


def _difference(value: Value, got: np.ndarray, want: np.ndarray) -> str:
    """How results differ; empty where they agree: bit for bit unless they were rounded."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    if value.exact:
        wide = (a.astype(np.float64) if a.dtype.kind == "V" or value.dtype.startswith(("bf", "float8")) else a
                for a in (got, want))  # fmt: skip
        different = ~np.equal(*wide) & ~((got != got) & (want != want))
    else:
        a, b = (x.astype(np.complex128 if value.complex else np.float64) for x in (got, want))
        finite = np.abs(b[np.isfinite(b)])
        near = _ROUNDING.get(value.dtype, _COARSE) * (1.0 + float(finite.max(initial=0.0)))
        different = ~np.isclose(a, b, rtol=0.0, atol=near, equal_nan=True)
    return f"{int(different.sum())} of {different.size} elements" if different.any() else ""


class _Compiled:
    """A plan on XLA; what it runs is what its bytes are counted in."""

    def __init__(self, plan: Any) -> None:
        self.function = plan.to_jax()
        self.lowered: Any = None
        self.compiled: Any = None

    def run(self, *arrays: Any) -> Any:
        """The function's results."""
        self.lowered = self.function.lower(*arrays)
        self.compiled = self.lowered.compile()
        return self.function(*arrays)

    @property
    def bytes(self) -> float:
        """What its collectives send, in the element types that the plan has them in."""
        return count_as_written(self.lowered.compiler_ir("stablehlo"), self.compiled.as_text()).wire_bytes

    @property
    def handed(self) -> float | None:
        """What the collectives of the program that XLA is handed send; None where a loop's trips are not told."""
        try:
            return count_collectives(self.lowered.compiler_ir("hlo").as_hlo_text(), jax.device_count()).wire_bytes
        except es.errors.ProgramError:
            return None


def _figures(plan: Any, compiled: _Compiled) -> list[Problem]:
    """Bytes as predicted, and bound <= cost <= baseline."""
    found = []
    cost, bound, baseline = plan.cost.total, plan.bound, plan.baseline.cost.total
    if bound > cost * (1 + 1e-6) + 1e-12:
        found.append(Problem("bound", f"the bound {bound:.6g} s is above the plan's {cost:.6g} s"))
    if cost > baseline * (1 + 1e-6) + 1e-12:
        found.append(Problem("bound", f"the plan costs {cost:.6g} s, its baseline {baseline:.6g} s"))
    if not compiled.compiled:
        return found
    try:
        counted = compiled.bytes
    except es.errors.EggshardError as error:
        return [*found, Problem("bytes", f"not to be counted: {_shown(error)}")]
    if abs(counted - plan.serial_bytes) > 0.5:
        simpler = counted < plan.serial_bytes == compiled.handed
        kind = SIMPLIFIED if simpler else "bytes"
        found.append(Problem(kind, f"counted {counted:.0f} B, predicted {plan.serial_bytes} B"))
    return found


def renamed(drawn: Drawn) -> Drawn:
    """The program on a mesh whose axes have other names; programs that name axes in their lines stay as they are."""
    new = {a: f"z{25 - i}" for i, (a, _) in enumerate(drawn.mesh)}

    def specs(given: Sequence[Any]) -> Any:
        return tuple(None if s is None else tuple(tuple(new[a] for a in d) for d in s) for s in given)

    mesh = tuple((new[a], n) for a, n in drawn.mesh)
    return replace(drawn, mesh=mesh, input_specs=specs(drawn.input_specs), output_specs=specs(drawn.output_specs))


def reordered(drawn: Drawn) -> Drawn:
    """The program with its lines in another order in which every value is made before it is used."""
    rng, waiting, known, out = random.Random(drawn.seed), list(drawn.lines), {v.name for v in drawn.inputs}, []
    while waiting:
        line = rng.choice([x for x in waiting if known.issuperset(x.uses)])
        waiting.remove(line)
        known.add(line.name)
        out.append(line)
    return replace(drawn, lines=tuple(out))


def _order(drawn: Drawn, plan: Any) -> list[Problem]:
    """Other costs under other names or in another order.

    Sharding propagation itself depends on the order of lines, XLA's as ours. Where a search has left out what is far
    from where propagation puts things, and says so, another propagation is another search.
    """
    named = any("'" + a + "'" in line.expression for line in drawn.lines for a, _ in drawn.mesh)
    found = []
    for what, other in (("renamed axes", None if named else renamed(drawn)), ("reordered lines", reordered(drawn))):
        if other is None or other == drawn:
            continue
        mesh = mesh_of(other.mesh)
        with warnings.catch_warnings(), jax.set_mesh(mesh):
            warnings.simplefilter("ignore", es.errors.EggshardWarning)
            again = es.optimize(other.jitted(mesh).lower(*other.structs()))
        cost = again.cost.total
        if abs(cost - plan.cost.total) > _SAME * plan.cost.total + 1e-12:
            left_out = other.mesh == drawn.mesh and plan.gap is None is again.gap
            kind = MOVED if left_out and _propagated(plan) != _propagated(again) else "order"
            found.append(Problem(kind, f"{what}: {cost:.6g} s instead of {plan.cost.total:.6g} s"))
    return found


def _propagated(plan: Any) -> tuple[Sequence[str], Counter[tuple[str, tuple[str, ...]]]]:
    """Where propagation puts the inputs of a plan's program, and by op the results."""
    at, region = [str(s) for s in propagated(plan.program).values], plan.program.region
    return [at[v] for v in region.inputs], Counter((op.name, tuple(at[v] for v in op.results)) for op in region.ops)
