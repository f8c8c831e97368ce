"""Programs of matrices in which no part is like another, of any number of ops, drawn by a seed."""

from __future__ import annotations

import random
from collections.abc import Callable

import eggshard as es
from eggshard.frontends.builder import ProgramBuilder, Tensor
from eggshard.program.program import Program

_SIDES = (64, 128, 192, 256, 320, 384)
_SHARDINGS = (("x", None), (None, "y"), ("x", "y"), (None, None))
#: Inputs and outputs, and of how many of the latest values operands are drawn.
_INPUTS, _OUTPUTS, _NEAR = 12, 8, 60


def irregular(ops: int, seed: int) -> Program:
    """At least so many products, sums, functions, transposes and scalings by sums of rows, each of recent values."""
    rng = random.Random(seed)
    builder = es.ProgramBuilder({"x": 4, "y": 2})
    values = [builder.input((rng.choice(_SIDES), rng.choice(_SIDES)), sharding=rng.choice(_SHARDINGS))
              for _ in range(_INPUTS)]
    made = 0
    while made < ops:
        result, count = _drawn(builder, rng, values[-_NEAR:])
        values += result
        made += count
    for value in values[-_OUTPUTS:]:
        builder.output(value)
    return builder.build()


def _drawn(builder: ProgramBuilder, rng: random.Random, near: list[Tensor]) -> tuple[list[Tensor], int]:
    """A value made of others, and the ops that it took; none where none fits."""
    x = rng.choice(near)

    def other(fits: Callable[[Tensor], bool]) -> Tensor | None:
        found = [value for value in near if fits(value)]
        return rng.choice(found) if found else None

    kind = rng.choice(("dot", "add", "multiply", "subtract", "tanh", "exponential", "transpose", "scaled"))
    if kind == "dot":
        y = other(lambda value: value.shape[0] == x.shape[1])
        return ([], 0) if y is None else ([builder.dot(x, y)], 1)
    if kind == "scaled":
        return [x * builder.broadcast(builder.sum(x, 1), x.shape, (0,))], 3
    if kind in ("add", "multiply", "subtract"):
        y = other(lambda value: value.shape == x.shape)
        assert y is not None  # x itself
        return [builder.op(kind, x, y)], 1
    return [builder.transpose(x) if kind == "transpose" else builder.op(kind, x)], 1
