"""Random loops: a step of some fields, drawn by a seed, as it is repeated by a loop or written out."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P

#: Meshes, and how their axes lie on the fields' dimensions.
PLACES: tuple[tuple[dict[str, int], tuple[str | None, ...]], ...] = (
    ({"x": 4, "y": 2}, ("x", "y")), ({"x": 4, "y": 2}, ("x", "y")), ({"x": 4, "y": 2}, ("y", "x")),
    ({"x": 4, "y": 2}, ("x", None)), ({"x": 8}, (None, "x")), ({"x": 2, "y": 2, "z": 2}, ("x", "y")),
)
SIZES = (16, 64, 256)

#: What a step makes a field of: ``a`` is the field, ``b`` another one, ``w`` a matrix that no step changes.
TERMS = (
    "a + 0.1 * (jnp.roll(b, 1, 0) - b)",
    "a - 0.1 * (b - jnp.roll(b, 1, 1))",
    "a - 0.1 * (jnp.roll(b, -1, 1) - b + jnp.concatenate([a[1:], jnp.zeros_like(a[:1])], axis=0) - a)",
    "a.at[1:].add(-0.1 * (b[1:] - b[:-1]))",
    "a.at[1:-1, 1:-1].set(0.25 * (b[:-2, 1:-1] + b[2:, 1:-1] + b[1:-1, :-2] + b[1:-1, 2:]))",
    "a + 0.1 * (jnp.pad(b, 1, mode='edge')[:-2, 1:-1] + jnp.pad(b, 1)[1:-1, 2:] - 2 * a)",
    "a - b.mean(0, keepdims=True)",
    "a / (1 + (b * b).sum())",
    "jnp.tanh(b.T) + a",
    "jnp.tanh(a @ w)",
    "a + 0.1 * (b @ w)",
    "jnp.cumsum(a, 1) * 0.01 + b",
    "jnp.maximum(a, jnp.flip(b, 0))",
    "jnp.where(a > 0, a, b)",
)


@dataclass(frozen=True)
class RandomLoop:
    """A step: the new fields as expressions of what was before, each of which sees the ones made before it."""

    mesh: tuple[tuple[str, int], ...]
    spec: tuple[str | None, ...]
    size: int
    lines: tuple[tuple[int, int, str], ...]
    fields: int

    def step(self, w: Any, state: Sequence[Any]) -> tuple[Any, ...]:
        fields = list(state)
        for i, j, term in self.lines:
            fields[i] = eval(term, {"jnp": jnp}, {"a": fields[i], "b": fields[j], "w": w})
        return tuple(fields)

    def lowered(self, times: int, unrolled: bool = False) -> str:
        """The text of a program that does ``times`` steps, in a loop or one after the other."""
        mesh = AbstractMesh(tuple(n for _, n in self.mesh), tuple(a for a, _ in self.mesh),
                            axis_types=(AxisType.Auto,) * len(self.mesh))
        place, whole = NamedSharding(mesh, P(*self.spec)), NamedSharding(mesh, P())

        def run(w: Any, *state: Any) -> Any:
            if not unrolled:
                return lax.fori_loop(0, times, lambda _, s: self.step(w, s), state)
            for _ in range(times):
                state = self.step(w, state)
            return state

        function = jax.jit(run, in_shardings=(whole, *[place] * self.fields), out_shardings=place, keep_unused=True)
        shape = jax.ShapeDtypeStruct((self.size, self.size), jnp.float32)
        lowered = function.trace(shape, *[shape] * self.fields).lower(lowering_platforms=("cpu",))
        text: str = lowered.as_text()
        return text


def random_loop(rng: random.Random) -> RandomLoop:
    mesh, spec = rng.choice(PLACES)
    fields = rng.randint(1, 3)
    lines = tuple(
        (rng.randrange(fields), rng.randrange(fields), rng.choice(TERMS)) for _ in range(rng.randint(1, 4)))
    return RandomLoop(tuple(mesh.items()), spec, rng.choice(SIZES), lines, fields)
