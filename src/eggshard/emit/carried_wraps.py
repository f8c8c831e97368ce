"""Loops that carry a value with what a wrap-around puts beside it.

A body that wraps what it is given around copies it in every iteration. Where two arrays alternate (`double_buffers`),
what an iteration makes is written into one anyway: into the middle of a wider one, whose ends it then copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from eggshard.emit.double_buffers import assembled, cut_from, makers_of
from eggshard.ops import registry
from eggshard.program.attributes import Attributes
from eggshard.program.types import TensorType
from eggshard.steps.assemble import Assembler
from eggshard.steps.control_steps import Loop
from eggshard.steps.steps import Local, StepPlan

#: Turns from which the copies that a wider array takes before the loop are worth it.
_TURNS = 4


def carrying_wraps(loop: Loop, turns: int) -> tuple[Loop, dict[int, Local]]:
    """The loop with wider arrays in place of values that its body wraps around, and the wrap-around of each place.

    These are values that are carried unchanged, or written into two arrays by turns.
    """
    found = _wrapped(loop) if turns >= _TURNS else {}
    body = loop.body
    while found:
        wider = _carrying(loop, found)
        written = assembled(wider, turns)
        kept = {i: wrap for i, wrap in found.items() if i in written or body.outputs[i] == body.inputs[i]}
        if kept == found:
            return (wider, found) if written else (loop, {})
        found = kept
    return loop, {}


def middle(wrap: Local) -> Local:
    """The cut of a wrap-around's result that is its operand."""
    (type_,), dim = wrap.result_types, wrap.attributes["dimension"]
    stops = list(type_.shape)
    stops[dim] -= wrap.attributes["rhs"]
    return _cut(type_, [wrap.attributes["lhs"] * (d == dim) for d in range(type_.rank)], stops)


def _cut(type_: TensorType, starts: Sequence[int], stops: Sequence[int]) -> Local:
    part = Attributes(start_indices=tuple(starts), limit_indices=tuple(stops), strides=(1,) * type_.rank)
    return Local("slice", part, (type_.with_shape(tuple(b - a for a, b in zip(starts, stops, strict=True))),))


class _Wrapped(NamedTuple):
    """A wrap-around of all of an input along a dimension, or of a cut of it that begins somewhere in the others."""

    value: int
    start: tuple[int, ...]
    attributes: Attributes


def _wraps(program: StepPlan) -> dict[int, _Wrapped]:
    """By its result's number what wraps an input around."""
    makers, found = makers_of(program), dict[int, _Wrapped]()
    for step in program.steps:
        if isinstance(step.action, Local) and step.action.name == "wrap":
            dim, (cut,) = step.action.attributes["dimension"], step.operands
            value, start = cut_from(program, makers, cut)
            whole = program.types[value].rank == len(start) and (
                program.types[value].shape[dim] == program.types[cut].shape[dim])
            if value in program.inputs and whole:
                found[step.results[0]] = _Wrapped(value, start, step.action.attributes)
    return found


def _wrapped(loop: Loop) -> dict[int, Local]:
    """By place the carried values that the body wraps around, along the first of the dimensions that it does."""
    body = loop.body
    places = {v: i for i, v in enumerate(body.inputs)}
    asked = {v for step in loop.condition.steps for v in step.operands}
    found: dict[int, Local] = {}
    for wrap in _wraps(body).values():
        place, type_ = places[wrap.value], body.types[wrap.value]
        if loop.condition.inputs[place] not in asked and place not in found:
            found[place] = Local("wrap", wrap.attributes, registry.get("wrap").infer(wrap.attributes, (type_,)))
    return found


def _carrying(loop: Loop, wraps: Mapping[int, Local]) -> Loop:
    """The loop that carries the results of these wrap-arounds of its carried values."""
    condition, body = Assembler(loop.body.mesh), Assembler(loop.body.mesh)
    holds = _again(loop.condition, condition, wraps)
    made = _again(loop.body, body, wraps)
    outputs = [made[v] for v in loop.body.outputs]
    for place, wrap in wraps.items():
        unchanged = loop.body.outputs[place] == loop.body.inputs[place]
        outputs[place] = body.inputs[place] if unchanged else body.emit(wrap, (outputs[place],))[0]
    return Loop(condition.build(holds[v] for v in loop.condition.outputs), body.build(outputs), loop.trip_count)


def _again(program: StepPlan, out: Assembler, wraps: Mapping[int, Local]) -> dict[int, int]:
    """Append a condition or body that is given wider values; its values, by number."""
    wider = {program.inputs[place]: wrap for place, wrap in wraps.items()}
    given = {v: out.input(wider[v].result_types[0] if v in wider else program.types[v]) for v in program.inputs}
    values = {v: out.emit(middle(wider[v]), (new,))[0] if v in wider else new for v, new in given.items()}
    inside = _wraps(program)
    for step in program.steps:
        one = inside.get(step.results[0]) if step.results else None
        if one is not None and one.value in wider and one.attributes == wider[one.value].attributes:
            stops = [n + size for n, size in zip(one.start, program.types[step.results[0]].shape, strict=True)]
            made = out.emit(_cut(out.types[given[one.value]], one.start, stops), (given[one.value],))
        else:
            made = out.again(step, tuple(values[v] for v in step.operands))
        values.update(zip(step.results, made, strict=True))
    return values
