"""The state of a draw: values so far, and the lines of source that make them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from bench.fuzz.values import DTYPES, NARROW, Value, bounded

#: What the source of a program may name.
NAMESPACE: dict[str, Any] = {
    "jax": jax, "jnp": jnp, "lax": lax, "np": np, "P": PartitionSpec, "constrained": lax.with_sharding_constraint,
}  # fmt: skip
#: A value of a drawn program has at most so many elements.
ELEMENTS = 2048
SIZES = (1, 2, 2, 3, 4, 4, 4, 6, 8, 8, 8, 12, 16)


class Inapplicable(Exception):
    """A template finds no operands that it can use."""


@dataclass(frozen=True)
class Line:
    """``name = expression`` in a program's source; uses: the names of the values in the expression."""

    name: str
    expression: str
    uses: tuple[str, ...]


@dataclass
class Draw:
    """Draws a program line by line. axes: the mesh's."""

    rng: random.Random
    axes: dict[str, int]
    inputs: list[Value] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def fresh(self, shape: Sequence[int], dtype: str) -> Value:
        """A new input."""
        made = Value(f"a{len(self.inputs)}", tuple(shape), dtype, bounded(dtype, 3.0))
        self.inputs.append(made)
        self.values.append(made)
        return made

    def shape(self, least: int = 1, most: int = 3) -> tuple[int, ...]:
        """A random shape within `ELEMENTS`."""
        while True:
            drawn = tuple(self.rng.choice(SIZES) for _ in range(self.rng.randint(least, most)))
            if np.prod(drawn) <= ELEMENTS // 4:
                return drawn

    def pick(self, accepts: Callable[[Value], bool] = lambda _: True, fresh: bool = True) -> Value:
        """A value that a template can use, later ones more often; now and then, or where there is none, a new input."""
        found = [v for v in self.values if accepts(v)]
        if found and not self.chance(0.08):
            return self.rng.choice(found[-6:] if self.chance(0.7) else found)
        if fresh:
            for _ in range(20):
                made = Value("", self.shape(), self.rng.choice(DTYPES), 3.0)
                if accepts(made):
                    return self.fresh(made.shape, made.dtype)
        if found:
            return self.rng.choice(found)
        raise Inapplicable

    def like(self, value: Value, shape: Sequence[int] | None = None) -> Value:
        """A value of the same element type and shape (or of another shape), a new input where there is none."""
        wanted = value.shape if shape is None else tuple(shape)
        found = [v for v in self.values if v.shape == wanted and v.dtype == value.dtype]
        return self.rng.choice(found) if found and self.chance(0.8) else self.fresh(wanted, value.dtype)

    def add(self, expression: str, *uses: Value, bound: float, sums: bool = False) -> Value:
        """A new line. bound: of the partial sums of its result, as `Value.bound`; sums: whether these are many."""
        operands = list(dict.fromkeys(uses))
        made = types_of(expression, operands)
        if not made.size or made.size > ELEMENTS:
            raise Inapplicable
        dtype = str(made.dtype)
        value = Value(f"v{len(self.lines)}", made.shape, dtype, bounded(dtype, bound))
        if sums and dtype in NARROW and not value.exact:
            raise Inapplicable
        self.lines.append(Line(value.name, expression, tuple(v.name for v in operands)))
        self.values.append(value)
        return value


def types_of(expression: str, operands: Sequence[Value]) -> jax.ShapeDtypeStruct:
    """The shape and element type of an expression's result; Inapplicable where JAX refuses it."""
    names = [v.name for v in operands]
    structs = [jax.ShapeDtypeStruct(v.shape, jnp.dtype(v.dtype)) for v in operands]
    compiled = compile(expression, "<drawn>", "eval")
    try:
        made = jax.eval_shape(lambda *a: eval(compiled, {**NAMESPACE, **dict(zip(names, a, strict=True))}), *structs)
    except (TypeError, ValueError, NotImplementedError, OverflowError) as error:
        raise Inapplicable(str(error)) from error
    if not isinstance(made, jax.ShapeDtypeStruct):
        raise Inapplicable("more than one result")
    return made


Template = Callable[[Draw], Value]
#: Every template with its weight.
TEMPLATES: list[tuple[Template, float]] = []


def template(weight: float = 1.0) -> Callable[[Template], Template]:
    """Register a template: it draws one line, or raises Inapplicable."""

    def register(function: Template) -> Template:
        TEMPLATES.append((function, weight))
        return function

    return register
