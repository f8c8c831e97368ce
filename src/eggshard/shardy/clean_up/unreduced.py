"""The pass that checks that partial sums stay unreduced until an op says that they are reduced."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from eggshard.errors import ShardingError
from eggshard.program.axes import Axes, AxisRef, any_overlap, difference
from eggshard.program.mesh import Mesh
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.module import ShardyModule, callee, maker, manual_axes
from eggshard.shardy.passes import shardy_pass

#: Ops that say what becomes of partial sums: whatever they drop is reduced there, whatever they add is made there.
EXPLICIT = ("sdy.reshard", "sdy.sharding_constraint")
REDUCING = ("sdy.all_reduce", "sdy.reduce_scatter", "stablehlo.all_reduce", "stablehlo.reduce_scatter")
BARRIER = "sdy.propagation_barrier"
REMEDY = "reduce it first with an sdy.reshard or sdy.sharding_constraint that leaves it out"
_COMBINED = {
    "stablehlo.add": "add", "stablehlo.maximum": "max", "stablehlo.minimum": "min", "stablehlo.multiply": "mul",
}  # fmt: skip


@shardy_pass("verify-unreduced-axes", on="")
def verify_unreduced_axes(module: ShardyModule) -> None:
    """Check that no op loses unreduced axes: it reduces them explicitly, or its results have them too.

    ShardingError, naming the op and the axis, where

    - an op's operands are unreduced along an axis and none of its results is (reshards and constraints may do so, and
      all-reduces and reduce-scatters of the same kind of sum; what a reshard or a constraint makes may be used freely),
    - a result is unreduced by another reduction than the op can make, or than its operand had,
    - a value that is returned, passed to a function or got from one is unreduced along other axes than stated there.
    """
    checker = _Checker(module)
    for function in module.functions:
        for op in module.walk(root=function):
            checker.check(op)


class _Partial(NamedTuple):
    """The axes along which a value is partial, on their mesh, and how its partial values combine."""

    axes: Axes = ()
    mesh: Mesh | None = None
    reduction: str = "add"


class _Checker:
    def __init__(self, module: ShardyModule) -> None:
        self.module = module
        self.functions = module.by_name

    def check(self, op: Any) -> None:
        if op.name == "func.func":
            return
        if op.name == "func.call":
            self._call(op)
        elif op.name in ("func.return", "sdy.return"):
            self._returned(op)
        elif op.name == "stablehlo.return":
            self._region_result(op)
        else:
            self._transition(op)

    # -- ops ---------------------------------------------------------------------------------------------------------

    def _transition(self, op: Any) -> None:
        explicit = op.name in EXPLICIT
        operands = [self._of(value, through_explicit=explicit) for value in op.operands]
        results = [self._of(value, through_explicit=True) for value in op.results]
        if op.name.startswith("sdy.") and op.name in REDUCING and self._sharding(op.operands[0]) is None:
            raise ShardingError(f"the operand of {_shown(op)} has no sharding; state how it is partial")
        meshes = {p.mesh for p in (*operands, *results) if p.mesh is not None}
        if len(meshes) > 1:
            return  # parts of different meshes are not compared
        mesh = next(iter(meshes), None)
        given = [a for p in operands for a in p.axes]
        made = [a for p in results for a in p.axes]
        lost, new = _without(given, made, mesh), _without(made, given, mesh)
        if lost and not explicit:
            self._reduced(op, operands, lost)
        if new and op.name in REDUCING:
            raise ShardingError(f"{_shown(op)} cannot make its result unreduced along {_axes(new)}")
        expected = "add" if op.name != "stablehlo.reduce" else _combined(op)
        for partial in results:
            if any_overlap(partial.axes, new) and partial.reduction != expected:
                raise ShardingError(
                    f"{_shown(op)} makes its result unreduced={partial.reduction} along {_axes(new)}, "
                    f"but its partial sums combine by {expected or 'no known reduction'}"
                )
        for before in operands:
            for after in results:
                if before.reduction != after.reduction and any_overlap(before.axes, after.axes):
                    raise ShardingError(
                        f"{_shown(op)} changes the reduction of unreduced axes {_axes(after.axes)} from "
                        f"{before.reduction} to {after.reduction}; {REMEDY}"
                    )

    def _reduced(self, op: Any, operands: Sequence[_Partial], lost: Axes) -> None:
        if op.name not in REDUCING:
            raise ShardingError(f"{_shown(op)} drops the unreduced axis {_axes(lost)} of its operands; {REMEDY}")
        kind = _combined(op) if op.regions else "add"
        for partial in operands:
            if any_overlap(partial.axes, lost) and partial.reduction != kind:
                raise ShardingError(
                    f"{_shown(op)} reduces by {kind or 'no known reduction'} what is unreduced={partial.reduction} "
                    f"along {_axes(lost)}"
                )

    # -- what goes in and out of functions and bodies ------------------------------------------------------------------

    def _call(self, op: Any) -> None:
        called = self.functions.get(callee(op))
        if called is None:
            return
        arguments, results = self.module.argument_shardings(called), self.module.function_result_shardings(called)
        for i, (value, sharding) in enumerate(zip(op.operands, arguments, strict=True)):
            if not _is_explicit(value):
                self._same(op, f"argument {i}", self._of(value), self._partial(sharding))
        for i, (value, sharding) in enumerate(zip(op.results, results, strict=True)):
            self._same(op, f"result {i}", self._partial(sharding), self._of(value))

    def _returned(self, op: Any) -> None:
        parent = op.parent.operation
        if parent.name == "func.func":
            stated: Sequence[TensorSharding | None] = self.module.function_result_shardings(parent)
        else:
            found = self.module.result_shardings(parent) or (None,) * len(parent.results)
            names = manual_axes(parent)
            stated = [s and TensorSharding(s.mesh, s.sharding.without(names)) for s in found]
        for i, (value, sharding) in enumerate(zip(op.operands, stated, strict=True)):
            if sharding is not None and not _is_explicit(value):
                self._same(op, f"value {i}", self._of(value), self._partial(sharding))

    def _region_result(self, op: Any) -> None:
        """What a branch or a loop's body returns may not be more partial than the result that it becomes."""
        parent = op.parent.operation
        if parent.name not in ("stablehlo.case", "stablehlo.if", "stablehlo.while"):
            return
        if parent.name == "stablehlo.while" and op.block == parent.regions[0].blocks[0]:
            return
        stated = self.module.result_shardings(parent) or ()
        for i, (value, sharding) in enumerate(zip(op.operands, stated, strict=False)):
            given = self._of(value)
            lost = _without(given.axes, self._partial(sharding).axes, given.mesh)
            if lost:
                raise ShardingError(
                    f"value {i} of {_shown(op)} is unreduced along {_axes(lost)}, and result {i} of its "
                    f"{parent.name} is not; {REMEDY}"
                )

    def _same(self, op: Any, where: str, given: _Partial, wanted: _Partial) -> None:
        if given.mesh is not None and wanted.mesh is not None and given.mesh != wanted.mesh:
            return
        mesh = given.mesh or wanted.mesh
        differ = (*_without(given.axes, wanted.axes, mesh), *_without(wanted.axes, given.axes, mesh))
        if differ:
            raise ShardingError(
                f"{where} of {_shown(op)} is unreduced along {_axes(given.axes)} on one side and "
                f"{_axes(wanted.axes)} on the other; {REMEDY}"
            )

    # -- values --------------------------------------------------------------------------------------------------------

    def _of(self, value: Any, through_explicit: bool = False) -> _Partial:
        """How a value is partial; what a reshard or a constraint makes counts as reduced, unless asked for."""
        if not through_explicit and _is_explicit(value):
            return _Partial()
        return self._partial(self._sharding(value))

    def _sharding(self, value: Any) -> TensorSharding | None:
        return self.module.sharding(_behind_barriers(value))

    def _partial(self, sharding: TensorSharding | None) -> _Partial:
        if sharding is None:
            return _Partial()
        return _Partial(sharding.sharding.unreduced, self.module.mesh(sharding), sharding.sharding.reduction)


def _behind_barriers(value: Any) -> Any:
    while (op := maker(value)) is not None and op.name == BARRIER:
        value = op.operands[0]
    return value


def _is_explicit(value: Any) -> bool:
    op = maker(_behind_barriers(value))
    return op is not None and op.name in EXPLICIT


def _combined(op: Any) -> str:
    """The reduction that a region of two scalars is; empty for others."""
    kinds = set()
    returned = list(op.regions[0].blocks[0].operations)[-1].operation
    for value in returned.operands:
        made = maker(value)
        kinds.add(_COMBINED.get(made.name, "") if made is not None else "")
    return kinds.pop() if len(kinds) == 1 else ""


def _without(axes: Iterable[AxisRef], others: Iterable[AxisRef], mesh: Mesh | None) -> Axes:
    """The parts of axes that no other axis covers."""
    return difference(dict.fromkeys(axes), others, mesh.axes) if mesh else ()


def _axes(axes: Axes) -> str:
    return ", ".join(map(str, axes)) or "no axis"


def _shown(op: Any) -> str:
    return f"{op.name} ({str(op).partition(chr(10))[0][:160]})"
