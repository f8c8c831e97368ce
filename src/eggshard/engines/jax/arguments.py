"""Arguments of jitted functions: which are static, where they and results lie, and what a trace says of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType

from eggshard.engines.jax.meshes import committed_sharding
from eggshard.frontends.jax.calling_convention import HOST


class Unknown:
    """Stands for the sharding of an argument that lies nowhere yet."""


UNKNOWN = Unknown()


@dataclass(frozen=True)
class Statics:
    """Which arguments are static, by position and by name, as `jax.jit` resolves them."""

    positions: tuple[int, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, fun: Callable[..., Any], argnums: Any, argnames: Any) -> Statics:
        numbers = () if argnums is None else (argnums,) if isinstance(argnums, int) else tuple(argnums)
        names = () if argnames is None else (argnames,) if isinstance(argnames, str) else tuple(argnames)
        try:
            parameters = list(inspect.signature(fun).parameters.values())
        except (TypeError, ValueError):
            return cls(numbers, names)
        positional = [p.name for p in parameters if p.kind == p.POSITIONAL_OR_KEYWORD]
        if argnames is None:
            names = tuple(positional[n] for n in numbers if -len(positional) <= n < len(positional))
        elif argnums is None:
            numbers = tuple(positional.index(name) for name in names if name in positional)
        return cls(numbers, names)

    def __bool__(self) -> bool:
        return bool(self.positions or self.names)

    def split(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, tuple[list[Any], dict[str, Any]]]:
        """(static, dynamic): hashable (position, value) and (name, value) pairs, and all other arguments."""
        if not self:
            return ((), ()), (list(args), kwargs)
        positions = {n % len(args) for n in self.positions if -len(args) <= n < len(args)}
        static = (
            tuple((i, a) for i, a in enumerate(args) if i in positions),
            tuple((k, v) for k, v in sorted(kwargs.items()) if k in self.names),
        )
        named = {k: v for k, v in kwargs.items() if k not in self.names}
        return static, ([a for i, a in enumerate(args) if i not in positions], named)

    def join(self, static: Any, dynamic: Any) -> tuple[list[Any], dict[str, Any]]:
        """Put static and dynamic arguments back together into ``(args, kwargs)``; the inverse of `split`."""
        args, kwargs = list(dynamic[0]), {**dynamic[1], **dict(static[1])}
        for i, value in static[0]:
            args.insert(i, value)
        return args, kwargs


def stated_sharding(leaf: Any) -> Any:
    """Where an argument lies if it must stay there, else `UNKNOWN` (which, unlike None, is a leaf of a tree)."""
    sharding = leaf.sharding if isinstance(leaf, jax.ShapeDtypeStruct) else committed_sharding(leaf)
    return UNKNOWN if sharding is None else sharding


def type_key(leaf: Any) -> Any:
    """What tells the types of arguments apart: an array's shape and element type, the class of anything else."""
    try:
        return leaf.shape, leaf.dtype
    except AttributeError:
        return type(leaf)


def explicit_sharding(leaf: Any) -> Any:
    """The sharding that the type of a tracer states, on any devices; None where it states none."""
    sharding = getattr(getattr(leaf, "aval", None), "sharding", None)
    if sharding is None or sharding.mesh.empty or not sharding.mesh.are_all_axes_explicit:
        return None
    mesh = sharding.mesh
    if mesh.size > len(jax.devices()):
        return None
    grid = np.array(jax.devices()[: mesh.size], dtype=object).reshape(mesh.axis_sizes)
    concrete = jax.sharding.Mesh(grid, mesh.axis_names, axis_types=mesh.axis_types)
    return jax.sharding.NamedSharding(concrete, sharding.spec)


def described(leaf: Any, sharding: Any) -> jax.ShapeDtypeStruct:
    """The type of a tracer, lying so."""
    aval = jax.typeof(leaf)
    weak = bool(getattr(aval, "weak_type", False))
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding, weak_type=weak)


def constrained(array: Any, sharding: Any) -> Any:
    """The array held to a sharding; in explicit mode its type says it already, except for the kind of memory."""
    if sharding is not None and sharding.memory_kind == HOST:
        return jax.device_put(array, sharding)
    if sharding is None or AxisType.Explicit in sharding.mesh.axis_types:
        return array
    return jax.lax.with_sharding_constraint(array, sharding)


def put(results: Any, places: dict[int, Any]) -> Any:
    """The results, these of them put where they are to lie."""
    leaves, tree = jax.tree.flatten(results)
    for i, place in places.items():
        leaves[i] = jax.device_put(leaves[i], place)
    return jax.tree.unflatten(tree, leaves)
