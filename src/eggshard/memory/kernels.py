"""Which values of a lowered device program are materialised: the compiler's fusion, as far as it decides on memory.

A model of XLA's pipeline for CPUs, learnt from its optimised modules:

- Views (reshapes, transposes that move dimensions of size 1 only, repeating nothing) share their operand's buffer.
- Loops (elementwise ops, and those that only move elements) are computed where they are used, if all users can do so.
  A value with several users is computed again by each of them if that is cheap; else it is kept.
- A reduction takes in the loops that feed it; products, collectives and library calls read and write buffers.
- A product wants its operands as matrices: (batch, rows, contracted) and (batch, contracted, columns). Dimensions in
  another order are copied first, but for a plain transpose, which the product does itself.
- An all-to-all has a buffer per block sent and received. Concatenations with several users are kept.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from eggshard.memory.instructions import Block, Instruction
from eggshard.program.types import TensorType

#: How an instruction behaves. View: its operand's buffer. Loop: may be computed where it is used. Join: a
#: concatenation. Sum: a reduction, takes in the loops before it. Update: overwrites part of its first operand, in place
#: where that dies. Call: reads buffers and writes one.
VIEW, LOOP, JOIN, SUM, UPDATE, CALL = "view", "loop", "join", "sum", "update", "call"

#: Loops whose results are not computed twice.
_EXPENSIVE = frozenset({
    "exponential", "exponential_minus_one", "log", "log_plus_one", "logistic", "tanh", "tan", "sine", "cosine", "power",
    "atan2", "cbrt", "erf", "erf_inv", "divide", "remainder", "sqrt", "rsqrt", "reduce_window",
})  # fmt: skip
_ELEMENTWISE = frozenset({
    "abs", "add", "and", "atan2", "bitcast_convert", "cbrt", "ceil", "clamp", "compare", "complex", "convert", "cosine",
    "count_leading_zeros", "divide", "erf", "erf_inv", "exponential", "exponential_minus_one", "floor", "imag",
    "is_finite", "log", "log_plus_one", "logistic", "maximum", "minimum", "multiply", "negate", "not", "or", "popcnt",
    "power", "real", "reduce_precision", "remainder", "round_nearest_afz", "round_nearest_even", "rsqrt", "select",
    "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign", "sine", "sqrt", "subtract", "tan", "tanh",
    "xor", "square", "conj", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh",
})  # fmt: skip
_MOVING = frozenset({"broadcast_in_dim", "slice", "dynamic_slice", "pad", "iota", "reverse", "gather", "transpose"})
_UPDATES = frozenset({"dynamic_update_slice", "scatter"})


@dataclass
class Node:
    """A value as the compiler sees it. ``operands`` are nodes by number; ``bytes`` 0 for what takes no memory.

    pieces: how many buffers it is, each computed apart.
    """

    kind: str
    operands: tuple[int, ...] = ()
    bytes: int = 0
    elementwise: bool = False
    expensive: bool = False
    pieces: int = 1
    name: str = ""


@dataclass
class Nodes:
    """All nodes of a block, operands first; which of them are inputs, and which stand for the outputs."""

    nodes: list[Node] = field(default_factory=list)
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()

    def add(self, *arguments: object, **more: object) -> int:
        self.nodes.append(Node(*arguments, **more))  # type: ignore[arg-type]
        return len(self.nodes) - 1

    def base(self, n: int) -> int:
        """The node whose buffer a view shares."""
        while self.nodes[n].kind == VIEW and self.nodes[n].operands:
            n = self.nodes[n].operands[0]
        return n
