"""Rules of elementwise ops, and of ops that make tensors of nothing or of scalars: one encoding for all tensors."""

from __future__ import annotations

from eggshard.triton.kernels.ir import Operation
from eggshard.triton.layouts.counts import Counts
from eggshard.triton.layouts.encodings import Encoding
from eggshard.triton.layouts.machine import Machine
from eggshard.triton.rules.costs import arithmetic, registers
from eggshard.triton.rules.rule import Option, Uniform, uniform

#: Dialects of ops without effects, and of branches between them.
_PURE = ("arith", "math", "cf", "ub")


class Pointwise(Uniform):
    """A pure op of so much arithmetic of a class per element; no class: it costs nothing."""

    def __init__(self, kind: str | None) -> None:
        self.kind = kind

    def movable(self, op: Operation) -> bool:
        return True

    def work(self, op: Operation, option: Option, machine: Machine) -> Counts:
        return arithmetic(self.kind, op, option, machine)


class Asserted(Pointwise):
    """An op whose attribute ``pure`` says that it has no effects; others run once."""

    def movable(self, op: Operation) -> bool:
        return op.attribute("pure") == "true"


class Packed(Pointwise):
    """A scalar region run on ``pack`` neighbouring registers at a time: there must be so many."""

    def _options(self, op: Operation, encoding: Encoding, machine: Machine) -> list[Option]:
        option = uniform(op, encoding)
        pack = op.integer("pack") or 1
        return [option] if pack == 1 or registers(op.results[0], encoding, machine) % pack == 0 else []

    def from_operand(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        return self._options(op, encoding, machine)

    def from_result(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        return self._options(op, encoding, machine)

    def movable(self, op: Operation) -> bool:
        inside = (inner for region in op.regions for block in region.blocks for inner in block.operations)
        return all(op.name.partition(".")[0] in _PURE or op.name == "tt.map_elementwise.return" for op in inside)


class Observed(Uniform):
    """An op with an effect that is the same at every encoding, and that happens once (an assertion)."""
