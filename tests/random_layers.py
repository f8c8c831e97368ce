"""Random programs of equal layers, in 32-bit integers: sums are exact in every order."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from eggshard.frontends.builder import ProgramBuilder, Tensor
from eggshard.program.program import Program

#: A layer's forward part: (activation, its weights, what all layers share) to (activation, saved); and what goes back.
Forward = Callable[[ProgramBuilder, Tensor, list[Tensor], Tensor], tuple[Tensor, Tensor]]
Backward = Callable[[ProgramBuilder, Tensor, Tensor, list[Tensor]], tuple[Tensor, list[Tensor]]]

MESHES = ({"x": 4, "y": 2}, {"x": 2, "y": 3}, {"x": 3})


@dataclass(frozen=True)
class Design:
    """How a program of layers is made: its layers' ops, and what else it does."""

    mesh: dict[str, int]
    layers: int
    rows: int
    features: int
    dots: int
    elementwise: tuple[str, ...]
    skip: bool
    backward: bool
    updates: bool
    auxiliary: bool
    tied: bool
    first_differs: bool
    free_outputs: bool
    #: Each layer adds another row of a table.
    positions: bool = False
    #: Layers see the same, and their sum counts.
    members: bool = False
    #: The number of layers of a second row, each of which takes what the first row delivers.
    decoder: int = 0


def random_design(rng: random.Random) -> Design:
    return Design(
        mesh=rng.choice(MESHES), layers=rng.randint(5, 9), rows=rng.choice((5, 8, 12)), features=rng.choice((6, 7, 8)),
        dots=rng.randint(1, 2), elementwise=tuple(rng.choices(("add", "multiply", "subtract", "maximum"), k=3)),
        skip=rng.random() < 0.5, backward=rng.random() < 0.7, updates=rng.random() < 0.5,
        auxiliary=rng.random() < 0.4, tied=rng.random() < 0.3, first_differs=rng.random() < 0.3,
        free_outputs=rng.random() < 0.5,
    )


def design_of_parts(design: Design, rng: random.Random) -> Design:
    """The design, with equal parts that are no row of layers."""
    return replace(design, positions=rng.random() < 0.5, members=rng.random() < 0.5, decoder=rng.choice((0, 5, 8)))


def layered(design: Design, rng: random.Random) -> Program:
    """The program of a design; its shardings are drawn."""
    d = design
    b = ProgramBuilder(d.mesh)
    axes = [None, *d.mesh]

    def sharding(shape: tuple[int, ...]) -> tuple[str | None, ...]:
        out: list[str | None] = []
        for n in shape:
            axis = rng.choice(axes)
            out.append(axis if axis and axis not in out and n % d.mesh[axis] == 0 else None)
        return tuple(out)

    square = d.features, d.features
    x0 = b.input((d.rows, d.features), "i32", sharding((d.rows, d.features)))
    shared = b.input((d.rows, d.features), "i32", sharding((d.rows, d.features)))
    kind = [sharding(square) for _ in range(d.dots)]
    tied = b.input(square, "i32", sharding(square))
    weights = [[b.input(square, "i32", kind[k]) for k in range(d.dots)] for _ in range(d.layers)]
    table = b.input((d.layers, d.features), "i32", sharding((d.layers, d.features))) if d.positions else None
    x, saved = x0, []
    for i, ws in enumerate(weights):
        if i == 0 and d.first_differs:
            x = -x
        saved.append(x)
        h = x0 if d.members else x
        for w, name in zip(ws, d.elementwise, strict=False):
            h = b.op(name, b.dot(h, w), shared)
        if d.tied:
            h = b.dot(h, tied)
        if d.skip:
            h = h + x0
        if table is not None:
            row = b.reshape(b.slice(table, (i, 0), (i + 1, d.features)), (d.features,))
            h = h + b.broadcast(row, h.shape, (1,))
        x = b.op(d.elementwise[2], x, h)
    total = None
    if d.auxiliary:
        for value in saved:
            term = b.sum(value)
            total = term if total is None else total + term
    y = x0 * 5
    for _ in range(d.decoder):
        y = b.dot(y, b.input(square, "i32", kind[0])) * 3 + b.dot(x, b.input(square, "i32", kind[-1]))
    outputs = [x, y] if d.decoder else [x]
    gradients: list[list[Tensor]] = []
    if d.backward:
        dx = x * 3
        for value, ws in zip(reversed(saved), reversed(weights), strict=True):
            gradients.append([b.dot_general(value, dx, ((0,), (0,))) for _ in ws[:1]])
            back = dx
            for w in reversed(ws):
                back = b.dot_general(back, w, ((1,), (1,)))
            dx = dx + back
        outputs.append(dx)
        gradients.reverse()
    for tensor in outputs:
        b.output(tensor, None if d.free_outputs else sharding(tensor.shape))
    if total is not None:
        b.output(total)
    if gradients and d.updates:
        for ws, gs in zip(weights, gradients, strict=True):
            b.output(ws[0] - gs[0] * 2, kind[0])
    elif gradients:
        for gs in gradients:
            b.output(gs[0], None if d.free_outputs else kind[0])
    return b.build()
