"""Rotations of one value along one dimension, cut out of one wrap-around that they share.

A rotation copies all of a value. A wrap-around is one copy, too, and what is cut out of it is read in place: the
neighbours of a stencil on two sides take one copy in place of two.
"""

from __future__ import annotations

from typing import NamedTuple

from eggshard.ops import registry
from eggshard.program.attributes import Attributes
from eggshard.steps.assemble import Assembler
from eggshard.steps.steps import Local, Step, StepPlan


class _Turn(NamedTuple):
    """A rotation of a value along a dimension by so many elements to the left, the shorter way round."""

    value: int
    dim: int
    shift: int


class _Widths(NamedTuple):
    """How many elements a wrap-around puts before a value, and after it."""

    before: int
    after: int


def wrapped(program: StepPlan) -> StepPlan:
    """A device program whose rotations are cut out of wrap-arounds; the program itself where none rotates."""
    turns = {step: turn for step in program.steps if (turn := _turn(program, step)) is not None}
    shifts: dict[tuple[int, int], list[int]] = {}
    for turn in turns.values():
        shifts.setdefault((turn.value, turn.dim), []).append(turn.shift)
    widths = {line: _Widths(-min(0, *found), max(0, *found)) for line, found in shifts.items()}
    if not widths:
        return program
    out = Assembler(program.mesh)
    values = {v: out.input(program.types[v]) for v in program.inputs}
    for step in program.steps:
        operands = tuple(values[v] for v in step.operands)
        if step in turns:
            turn = turns[step]
            made = _cut(out, step, operands, turn, widths[turn.value, turn.dim])
        else:
            made = out.again(step, operands)
        values.update(zip(step.results, made, strict=True))
    out.hold_as(program, values, values)
    return out.build(values[v] for v in program.outputs)


def _turn(program: StepPlan, step: Step) -> _Turn | None:
    """What a step rotates; None of other steps."""
    action = step.action
    if not isinstance(action, Local) or action.name != "rotate":
        return None
    (value,), dim, amount = step.operands, action.attributes["dimension"], action.attributes["amount"]
    size = program.types[value].shape[dim]
    return _Turn(value, dim, amount if 2 * amount <= size else amount - size)


def _cut(out: Assembler, step: Step, operands: tuple[int, ...], turn: _Turn, widths: _Widths) -> tuple[int, ...]:
    """A rotation, cut out of a wrap-around of these widths."""
    shape = out.types[operands[0]].shape
    starts = [widths.before + turn.shift if d == turn.dim else 0 for d in range(len(shape))]
    stops = [start + size for start, size in zip(starts, shape, strict=True)]
    around = Attributes(dimension=turn.dim, lhs=widths.before, rhs=widths.after)
    part = Attributes(start_indices=tuple(starts), limit_indices=tuple(stops), strides=(1,) * len(shape))
    made = operands
    for name, attributes in (("wrap", around), ("slice", part)):
        results = registry.get(name).infer(attributes, tuple(out.types[v] for v in made))
        made = out.again(step, made, Local(name, attributes, results))
    return made
