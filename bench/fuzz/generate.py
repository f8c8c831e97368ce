"""Whole programs: lines drawn from all templates, a mesh, and shardings of inputs and outputs."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from bench.fuzz import arithmetic, control, indexing, reductions, shapes, sharded  # noqa: F401  they register templates
from bench.fuzz.drawing import NAMESPACE, TEMPLATES, Draw, Inapplicable, Line
from bench.fuzz.values import Value, draw

#: Meshes of 1 to 5 axes.
MESHES = (
    {"a": 8}, {"a": 4, "b": 2}, {"a": 2, "b": 4}, {"a": 2, "b": 2, "c": 2}, {"a": 2, "b": 3}, {"a": 3},
    {"a": 1, "b": 4}, {"a": 2, "b": 2}, {"a": 2, "b": 1, "c": 4}, {"a": 2, "b": 2, "c": 2, "d": 2},
    {"a": 2, "b": 2, "c": 2, "d": 1, "e": 2},
)
DEVICES = 16
"""Virtual devices that the largest mesh takes."""
LINES = (2, 9)
"""The fewest and the most lines of a program."""

Axes = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Drawn:
    """A program in source, with its mesh and shardings. None: the compiler's choice.

    names: the values of `inputs` and `outputs` follow the order of the tuples of shardings.
    """

    mesh: tuple[tuple[str, int], ...]
    inputs: tuple[Value, ...]
    lines: tuple[Line, ...]
    outputs: tuple[Value, ...]
    input_specs: tuple[Axes | None, ...]
    output_specs: tuple[Axes | None, ...]
    seed: int

    @property
    def body(self) -> str:
        """The function ``f`` in Python."""
        lines = [f"    {line.name} = {line.expression}" for line in self.lines]
        results = ", ".join(v.name for v in self.outputs)
        return "\n".join([f"def f({', '.join(v.name for v in self.inputs)}):", *lines, f"    return ({results},)"])

    def function(self, constrained: bool = True) -> Callable[..., Any]:
        """The function itself; unless ``constrained``, without its constraints on shardings."""
        scope = NAMESPACE if constrained else {**NAMESPACE, "constrained": lambda x, _: x}
        scope = dict(scope)
        exec(self.body, scope)
        function: Callable[..., Any] = scope["f"]
        return function

    def jitted(self, mesh: jax.sharding.Mesh) -> Any:
        """The function under `jax.jit` with its shardings."""
        def placed(specs: tuple[Axes | None, ...]) -> tuple[NamedSharding | None, ...]:
            specs_of = (None if s is None else PartitionSpec(*(d or None for d in s)) for s in specs)
            return tuple(None if s is None else NamedSharding(mesh, s) for s in specs_of)

        return jax.jit(self.function(), in_shardings=placed(self.input_specs), out_shardings=placed(self.output_specs))

    def arrays(self) -> list[np.ndarray]:
        """Inputs, from the program's seed."""
        return [draw(v, np.random.default_rng([self.seed, i])) for i, v in enumerate(self.inputs)]

    def structs(self) -> list[jax.ShapeDtypeStruct]:
        """The inputs' shapes and element types."""
        return [jax.ShapeDtypeStruct(v.shape, jnp.dtype(v.dtype)) for v in self.inputs]

    def script(self) -> str:
        """A script that plans and runs the program and prints where results differ."""
        def specs(given: tuple[Axes | None, ...]) -> str:
            shown = ("None" if s is None else f"s(P{tuple(d or None for d in s)})" for s in given)
            return f"({', '.join(shown)},)" if given else "()"

        axes, count = dict(self.mesh), math.prod(n for _, n in self.mesh)
        drawn = "\n".join(
            f"    draw(Value({v.name!r}, {v.shape}, {v.dtype!r}), np.random.default_rng([{self.seed}, {i}])),"
            for i, v in enumerate(self.inputs)
        )
        return f"""import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", {max(8, count)})
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import eggshard as es
from bench.fuzz.values import Value, draw

mesh = jax.make_mesh(
    {tuple(axes.values())}, {tuple(axes)}, axis_types=(AxisType.Auto,) * {len(axes)}, devices=jax.devices()[:{count}]
)
s = lambda spec: NamedSharding(mesh, spec)
constrained = lax.with_sharding_constraint

{self.body}

arrays = [
{drawn}
]
with jax.set_mesh(mesh):
    lowered = jax.jit(
        f, in_shardings={specs(self.input_specs)}, out_shardings={specs(self.output_specs)}
    ).lower(*arrays)
    constrained = lambda x, _: x
    whole = jax.jit(lambda *a: f(*a))(*arrays)
plan = es.optimize(lowered)
for name, results in (("simulator", plan.run(*arrays)), ("XLA", plan.to_jax()(*arrays))):
    for i, (got, want) in enumerate(zip(jax.tree.leaves(results), whole)):
        print(name, i, "same" if np.array_equal(np.asarray(got), np.asarray(want), equal_nan=True) else "DIFFERS")
"""


def mesh_of(axes: tuple[tuple[str, int], ...]) -> jax.sharding.Mesh:
    """The mesh on virtual devices."""
    sizes = tuple(n for _, n in axes)
    return jax.make_mesh(sizes, tuple(a for a, _ in axes), axis_types=(AxisType.Auto,) * len(sizes),
                         devices=jax.devices()[: math.prod(sizes)])  # fmt: skip


def generate(seed: int) -> Drawn:
    """The program of a seed."""
    rng = random.Random(seed)
    axes = rng.choice(MESHES)
    with jax.set_mesh(mesh_of(tuple(axes.items()))):
        return _generated(Draw(rng, axes), seed)


def _generated(d: Draw, seed: int) -> Drawn:
    rng, axes = d.rng, d.axes
    for _ in range(rng.randint(1, 2)):
        d.fresh(d.shape(), rng.choice(("float32", "float32", "int32", "bfloat16")))
    templates, weights = zip(*TEMPLATES, strict=True)
    wanted = rng.randint(*LINES)
    tries = 0
    while len(d.lines) < wanted and tries < 200:
        tries += 1
        known = len(d.inputs), len(d.lines), len(d.values)
        try:
            rng.choices(templates, weights)[0](d)
        except Inapplicable:
            del d.inputs[known[0]:], d.lines[known[1]:], d.values[known[2]:]
    used = {name for line in d.lines for name in line.uses}
    results = [v for v in d.values if v.name not in used and v.name.startswith("v")][-4:]
    drawn = Drawn(
        tuple(axes.items()), tuple(d.inputs), tuple(d.lines), tuple(results),
        tuple(_spec(d, v) for v in d.inputs), tuple(_spec(d, v) for v in results), seed,
    )  # fmt: skip
    return pruned(drawn)


def _spec(d: Draw, value: Value) -> Axes | None:
    return None if d.chance(0.15) else sharded.spec(d, value.shape)


def pruned(drawn: Drawn) -> Drawn:
    """The program without lines and inputs that no output needs."""
    needed = {v.name for v in drawn.outputs}
    kept: list[Line] = []
    for line in reversed(drawn.lines):
        if line.name in needed:
            kept.append(line)
            needed.update(line.uses)
    places = [i for i, v in enumerate(drawn.inputs) if v.name in needed]
    return replace(
        drawn, lines=tuple(reversed(kept)), inputs=tuple(drawn.inputs[i] for i in places),
        input_specs=tuple(drawn.input_specs[i] for i in places),
    )  # fmt: skip
