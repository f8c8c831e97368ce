"""Analysis of arithmetic on counters: what a thread's registers share, and which elements lie side by side in memory.

The compiler sees that all registers of a splat are one, and that those of a counter differ by constants, which it folds
into sums and addresses: such arithmetic is done once whatever the layout.
"""

from __future__ import annotations

from typing import Literal
from weakref import WeakKeyDictionary

from eggshard.triton.kernels.ir import Block, Operation, Value

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


#: What is known of ops; each is asked for at every option.
_ONCE: WeakKeyDictionary[Operation, bool] = WeakKeyDictionary()


def once(op: Operation) -> bool:
    """Whether a thread runs the op once for all its registers."""
    if op not in _ONCE:
        _ONCE[op] = bool(op.results) and kind_of(op.results[0]) != "any"
    return _ONCE[op]


def _one_for_all(op: Operation) -> bool:
    """Whether a constant is one number (``dense<3>``), not a list of them (``dense<[3, 4]>``)."""
    return not (op.attribute("value") or "").removeprefix("dense<").lstrip().startswith("[")


#: How far apart neighbours are along a dimension: equal, one apart, further; None where that is not known.
Step = Literal[0, 1, 2] | None


def steps(pointers: Value, depth: int = DEPTH) -> tuple[Step, ...]:
    """Per dimension of a tensor how far apart neighbours are, by the ops that it comes of. What a loop carries is taken
    to go on as it begins."""
    return _steps(pointers, depth, {})


def _steps(value: Value, depth: int, known: dict[Value, tuple[Step, ...]]) -> tuple[Step, ...]:
    if value not in known:
        rank = 0 if value.tensor is None else len(value.tensor.shape)
        unknown: tuple[Step, ...] = (None,) * rank
        known[value] = () if value.tensor is None else _found(value, depth, known) or unknown
    return known[value]


def _found(value: Value, depth: int, known: dict[Value, tuple[Step, ...]]) -> tuple[Step, ...] | None:
    op = value.owner
    if depth == 0:
        return None
    if isinstance(op, Block):
        loop = op.parent.parent if op.parent is not None else None
        if loop is None or loop.name != "scf.for" or value.index == 0:
            return None
        return _steps(loop.operands[2 + value.index], depth - 1, known)
    assert value.tensor is not None
    if op.name in _SAME or op.name == "arith.constant" and _one_for_all(op):
        none: Step = 0
        return (none,) * len(value.tensor.shape)
    if op.name == "tt.make_range":
        return (1,)
    if op.name not in _MOVES and op.name not in _SUMS and op.name not in ("arith.muli", "arith.remsi", "arith.remui"):
        return None
    given = [_steps(v, depth - 1, known) for v in op.operands]
    first = given[0]
    if op.name == "tt.expand_dims":
        axis = int((op.attribute("axis") or "0").partition(":")[0])
        return (*first[:axis], 0, *first[axis:])
    if op.name == "tt.trans":
        order = [int(n) for n in (op.attribute("order") or "").removeprefix("array<i32:").rstrip("> ").split(",")]
        return tuple(first[dim] for dim in order)
    if op.name == "tt.reshape":
        return None
    if op.name in _MOVES:
        return first
    return tuple(_combined(op.name, a, b) for a, b in zip(*given, strict=True))


def _combined(name: str, a: Step, b: Step) -> Step:
    if name in ("arith.remsi", "arith.remui"):  # of what is smaller nothing changes
        return a if b == 0 else None
    if a == 0 and b == 0:
        return 0
    if name == "arith.muli":
        return 2 if 0 in (a, b) and None not in (a, b) else None
    if b == 0:
        return a
    if a == 0 and name != "arith.subi":
        return b
    return None
