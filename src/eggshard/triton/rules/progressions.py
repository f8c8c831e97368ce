"""Analysis of arithmetic that a thread's registers share, and that is therefore done once whatever the layout.

The compiler sees that all registers of a splat are one, and that those of a counter differ by constants, which it folds
into sums and addresses.
"""

from __future__ import annotations

from typing import Literal

from eggshard.triton.kernels.ir import Operation, Value

#: ``same``: one value for all elements. ``counted``: a counter, plus what is the same for all.
Kind = Literal["same", "counted", "any"]

_SAME = frozenset({"tt.splat", "ub.poison"})
_SUMS = frozenset({"arith.addi", "arith.subi", "tt.addptr"})
_MOVES = frozenset({
    "tt.broadcast", "tt.expand_dims", "ttg.convert_layout", "tt.reshape", "tt.trans", "arith.extsi", "arith.extui",
    "arith.trunci"})
_POINTWISE = ("arith.", "math.", "tt.addptr")
#: How many ops are looked back.
DEPTH = 12


def kind_of(value: Value, depth: int = DEPTH) -> Kind:
    """What is known of a value's elements by the ops that it comes of, looking at so many of them in a row."""
    op = value.owner
    if value.tensor is None:
        return "same"
    if not isinstance(op, Operation) or depth == 0:
        return "any"
    if op.name in _SAME or op.name == "arith.constant" and _one_for_all(op):
        return "same"
    if op.name == "tt.make_range":
        return "counted"
    if op.name not in _MOVES and not op.name.startswith(_POINTWISE):
        return "any"
    kinds = {kind_of(v, depth - 1) for v in op.operands} if op.operands else {"any"}
    if kinds == {"same"}:
        return "same"
    if "any" in kinds:
        return "any"
    return "counted" if op.name in _MOVES or op.name in _SUMS else "any"


def once(op: Operation) -> bool:
    """Whether a thread runs the op once for all its registers."""
    return bool(op.results) and kind_of(op.results[0]) != "any"


def _one_for_all(op: Operation) -> bool:
    """Whether a constant is one number (``dense<3>``), not a list of them (``dense<[3, 4]>``)."""
    return not (op.attribute("value") or "").removeprefix("dense<").lstrip().startswith("[")
