"""Values of loops and branches that must share one encoding: operands, carried values, yields and results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from eggshard.triton.kernels.ir import Operation, Value

#: What is in them has warps of its own, and takes nothing from around: it stays as it is.
SEALED = frozenset({"ttg.warp_specialize.partitions"})


def is_sealed(op: Operation) -> bool:
    """Whether an op stands in blocks that stay as they are."""
    around = op.parent_op
    while around is not None and around.name not in SEALED:
        around = around.parent_op
    return around is not None


class Use(NamedTuple):
    """An operand of an op, by its number."""

    op: Operation
    operand: int

    @property
    def value(self) -> Value:
        return self.op.operands[self.operand]


@dataclass(frozen=True)
class Tie:
    """One value of a region op through its blocks.

    ``sources`` give it, ``back`` gives it again after an iteration, and ``targets`` are it: arguments of blocks, and
    results of the op. ``once``: at one encoding, as a loop carries it; a branch may deliver several.
    """

    op: Operation
    sources: tuple[Use, ...]
    back: tuple[Use, ...]
    targets: tuple[Value, ...]
    once: bool = True


def ties(op: Operation) -> list[Tie] | None:
    """The ties of a loop or branch; None for other ops."""
    found = _TIES.get(op.name)
    return found(op) if found is not None else None


def holds_tensors(op: Operation) -> bool:
    """Whether an op has blocks with tensors in them and is no loop or branch that is understood: it and what ends its
    blocks keep the encodings that they have."""
    return bool(op.regions) and ties(op) is None and any(
        v.tensor is not None for inner in op.walk() if inner is not op
        for v in (*inner.operands, *inner.results, *(a for r in inner.regions for b in r.blocks for a in b.arguments)))


def _for(op: Operation) -> list[Tie]:
    body = op.body
    return [Tie(op, (Use(op, 3 + i),), (Use(body.terminator, i),), (body.arguments[1 + i], result))
            for i, result in enumerate(op.results)]


def _while(op: Operation) -> list[Tie]:
    before, after = (region.blocks[0] for region in op.regions)
    carried = [Tie(op, (Use(op, i),), (Use(after.terminator, i),), (argument,))
               for i, argument in enumerate(before.arguments)]
    passed = [Tie(op, (Use(before.terminator, 1 + i),), (), (after.arguments[i], result))
              for i, result in enumerate(op.results)]
    return carried + passed


def _if(op: Operation) -> list[Tie]:
    ends = [region.blocks[0].terminator for region in op.regions if region.blocks]
    return [Tie(op, tuple(Use(end, i) for end in ends), (), (result,), once=False)
            for i, result in enumerate(op.results)]


_TIES = {"scf.for": _for, "scf.while": _while, "scf.if": _if}
