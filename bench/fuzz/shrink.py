"""The smallest program that a problem of its kind is found in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import jax

from bench.fuzz.drawing import Inapplicable, types_of
from bench.fuzz.generate import Drawn, mesh_of, pruned
from bench.fuzz.values import Value, bounded

#: Programs tried at most.
TRIES = 120


def shrunk(drawn: Drawn, fails: Callable[[Drawn], bool]) -> Drawn:
    """A program on which ``fails`` still holds and none of its neighbours does, as far as the tries go."""
    tries = 0
    changed = True
    while changed and tries < TRIES:
        changed = False
        for candidate in _smaller(drawn):
            tries += 1
            if tries > TRIES:
                break
            if fails(candidate):
                drawn, changed = candidate, True
                break
    return drawn


def _smaller(drawn: Drawn) -> Iterator[Drawn]:
    """Programs with one output less, one line made an input, one sharding less, or a smaller mesh."""
    if len(drawn.outputs) > 1:
        for i in range(len(drawn.outputs)):
            yield pruned(replace(
                drawn, outputs=(drawn.outputs[i],), output_specs=(drawn.output_specs[i],),
            ))  # fmt: skip
    for line in reversed(drawn.lines):
        if (cut := _as_output(drawn, line.name)) is not None:
            yield cut
    for line in drawn.lines:
        if (cut := _as_input(drawn, line.name)) is not None:
            yield cut
    for field in ("input_specs", "output_specs"):
        specs = getattr(drawn, field)
        for i, given in enumerate(specs):
            if given is None:
                continue
            bare = tuple(() for _ in given)
            if given != bare:
                yield replace(drawn, **{field: (*specs[:i], bare, *specs[i + 1 :])})
                for k, axes in enumerate(given):
                    if axes:
                        fewer = (*given[:k], axes[:-1], *given[k + 1 :])
                        yield replace(drawn, **{field: (*specs[:i], fewer, *specs[i + 1 :])})


def _value(drawn: Drawn, name: str) -> Value | None:
    """A line's value; None where its type cannot be found."""
    with jax.set_mesh(mesh_of(drawn.mesh)):
        return _typed(drawn, name)


def _typed(drawn: Drawn, name: str) -> Value | None:
    known = {v.name: v for v in drawn.inputs}
    for line in drawn.lines:
        try:
            made = types_of(line.expression, [known[u] for u in line.uses])
        except Inapplicable:
            return None
        known[line.name] = Value(line.name, made.shape, str(made.dtype), bounded(str(made.dtype), 3.0))
    return known.get(name)


def _as_output(drawn: Drawn, name: str) -> Drawn | None:
    """The program up to a line."""
    value = _value(drawn, name)
    if value is None or name in {v.name for v in drawn.outputs}:
        return None
    stated = next((v for v in drawn.outputs if v.name == name), value)
    return pruned(replace(drawn, outputs=(stated,), output_specs=(tuple(() for _ in value.shape),)))


def _as_input(drawn: Drawn, name: str) -> Drawn | None:
    """The program with a line's value given."""
    value = _value(drawn, name)
    if value is None or name in {v.name for v in drawn.outputs} or value.size == 0:
        return None
    lines = tuple(line for line in drawn.lines if line.name != name)
    specs = (*drawn.input_specs, tuple(() for _ in value.shape))
    return pruned(replace(drawn, lines=lines, inputs=(*drawn.inputs, value), input_specs=specs))
