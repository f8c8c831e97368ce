"""What a function is whose shardings are to be chosen, and the sizes that a seed draws for it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

from bench.programs import Argument

_AXES = (("x", 4), ("y", 2))
#: All devices along one dimension.
ALL = ("x", "y")
Ways = Mapping[str, Sequence[P]]


class Open(NamedTuple):
    """A function and its arguments, none of which says where it lies.

    carry: {position of an argument: position of the result that becomes it}. hand: per name of a way what users state,
    one spec per argument. small: whether all ways to state its arguments may be tried.
    """

    name: str
    function: Callable[..., Any]
    arguments: Sequence[jax.ShapeDtypeStruct]
    hand: Ways
    carry: Mapping[int, int] = {}
    small: bool = True

    def shardings(self, specs: Sequence[P], mesh: Mesh) -> tuple[Any, Any]:
        """The ``in_shardings`` and ``out_shardings`` where arguments are stated: what is fed back lies as they do."""
        ins = tuple(NamedSharding(mesh, spec) for spec in specs)
        shapes = jax.eval_shape(self.function, *self.arguments)
        outs: list[Any] = [None] * len(jax.tree.leaves(shapes))
        for i, o in self.carry.items():
            outs[o] = ins[i]
        return ins, jax.tree.unflatten(jax.tree.structure(shapes), outs)

    def inputs(self, seed: int = 0) -> list[np.ndarray]:
        """One global array per argument, the same for the same seed."""
        generator = np.random.default_rng(seed)
        return [Argument(a.shape, None, a.dtype.name).draw(generator) for a in self.arguments]


def make_mesh() -> Mesh:
    """The mesh that specs are of."""
    names, sizes = zip(*_AXES, strict=True)
    return jax.make_mesh(sizes, names, axis_types=(AxisType.Auto,) * len(names))


class Sizes(NamedTuple):
    """Rows of a batch, tokens of a sequence, features, hidden features, points along a side of a grid, and steps."""

    batch: int
    time: int
    width: int
    hidden: int
    side: int
    steps: int

    @property
    def heads(self) -> int:
        """Heads of 64 features."""
        return self.width // 64

    @classmethod
    def drawn(cls, seed: int, little: bool = False) -> Sizes:
        """Sizes of a seed; little: such as a machine with few cores runs in a second."""
        rng = random.Random(f"{seed} choices")
        b, t, d = rng.choice((512, 1024, 4096)), rng.choice((256, 512)), rng.choice((512, 1024, 2048))
        n, steps = rng.choice((1024, 2048, 4096)), rng.choice((2, 3, 4))
        if little:
            b, t, d, n = b // 4, t // 4, 512, n // 2
        return cls(b, t, d, 4 * d, n, steps)


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    """An array of floats of so many elements a dimension."""
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def i32(*shape: int) -> jax.ShapeDtypeStruct:
    """An array of integers of so many elements a dimension."""
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def carried(count: int, first: int = 0) -> dict[int, int]:
    """So many arguments, which the results become that come in the same order. first: the first one's position."""
    return {first + k: k for k in range(count)}
