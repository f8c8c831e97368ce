"""The gradient of a function under `eggshard.jit`: forward and backward programs, each planned by itself.

The forward program returns what the backward program will need; that is one of its outputs, placed as is cheapest for
the forward program, and an input of the backward program, which starts from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.interpreters import ad
from jax.sharding import AxisType, NamedSharding

from eggshard.emit.jax_linear import LinearMap, apply_linear
from eggshard.engines.jax.caches import LruCache
from eggshard.engines.jax.meshes import committed_sharding
from eggshard.errors import EggshardError
from eggshard.frontends.jax.calling_convention import JaxCallingConvention


class Planned(Protocol):
    """A function whose calls are planned (`eggshard.jit`), as its gradient sees it."""

    __name__: str
    fun: Callable[..., Any]
    states_inputs: bool
    cache_size: int

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    def rebuild(self, static: Any, dynamic: Any) -> tuple[list[Any], dict[str, Any]]: ...

    def traced(self, args: Any, kwargs: Any) -> Any: ...

    def lower_unplanned(self, *args: Any, **kwargs: Any) -> Any: ...

    def stated_outputs(self, convention: JaxCallingConvention) -> Any: ...

    def derived(self, program: Callable[..., Any], shardings: dict[str, Any]) -> Planned:
        """Return the wrapper of another function, planned with this one's options."""


@dataclass(frozen=True)
class Residuals:
    """What goes from the forward to the backward program: JAX's pullback, and of each argument what the trace fixes.

    wanted: whether it is differentiated. places: where it lies, which is where its gradient shall lie.
    """

    pullback: Any
    wanted: tuple[bool, ...]
    places: tuple[Any, ...]


# The fields beside the pullback are static.
jax.tree_util.register_dataclass(Residuals, data_fields=["pullback"], meta_fields=["wanted", "places"])


def with_gradient(function: Planned, static: Any, tree: Any) -> Callable[..., Any]:
    """The function of the dynamic leaves alone, differentiable by planned programs.

    Its tangents are a linear map, whose transpose is the backward program.
    """
    gradient = _Gradient(function, static, tree)
    differentiable: Any = jax.custom_jvp(gradient.primal)
    differentiable.defjvp(gradient.forward_and_tangents, symbolic_zeros=True)
    result: Callable[..., Any] = differentiable
    return result


class _Gradient:
    def __init__(self, function: Planned, static: Any, tree: Any):
        self.function, self.static, self.tree = function, static, tree
        self._forward: LruCache[Planned] = LruCache(function.cache_size)
        self._backward: LruCache[Planned] = LruCache(function.cache_size)
        self._tangents: LruCache[Planned] = LruCache(function.cache_size)

    def arguments(self, leaves: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        return self.function.rebuild(self.static, jax.tree.unflatten(self.tree, leaves))

    def primal(self, *leaves: Any) -> Any:
        args, kwargs = self.arguments(leaves)
        return self.function.traced(args, kwargs)

    def forward_and_tangents(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        """The result, and its tangents as a linear map of those of the arguments."""
        wanted = tuple(
            not isinstance(t, SymbolicZero) and bool(jax.numpy.issubdtype(p.dtype, np.inexact))
            for p, t in zip(primals, tangents, strict=True)
        )
        result, residuals = self.forward(primals, wanted)
        given, tree = jax.tree.flatten(residuals)
        outputs, out_tree = jax.tree.flatten(result)
        types = [jax.typeof(leaf).to_tangent_aval() for leaf in outputs]
        varying = [i for i, type_ in enumerate(types) if type_.dtype != jax.dtypes.float0]

        def transpose(given: list[Any], cotangents: Sequence[Any]) -> list[Any]:
            every: list[Any] = [SymbolicZero(type_) for type_ in types]
            for i, cotangent in zip(varying, cotangents, strict=True):
                every[i] = SymbolicZero(types[i]) if isinstance(cotangent, ad.Zero) else cotangent
            found = self.backward(jax.tree.unflatten(tree, given), jax.tree.unflatten(out_tree, every))
            return [c for c, w in zip(found, wanted, strict=True) if w]

        def evaluate(given: Sequence[Any], moving: Sequence[Any]) -> Sequence[Any]:
            found = self.tangents(jax.tree.unflatten(tree, given), moving, out_tree, tuple(types))
            return [_typed(t, types[i]) for t, i in zip(found, varying, strict=True)]

        map_ = LinearMap(self.function.__name__, len(given), tuple(types[i] for i in varying), transpose, evaluate)
        moving = [t for t, w in zip(tangents, wanted, strict=True) if w]
        found = iter(apply_linear(map_, given, moving))
        every = [np.zeros(t.shape, t.dtype) if t.dtype == jax.dtypes.float0 else next(found) for t in types]
        return result, jax.tree.unflatten(out_tree, every)

    def forward(self, leaves: Sequence[Any], wanted: tuple[bool, ...]) -> tuple[Any, Residuals]:
        """The result for these leaves, and what the gradient of the wanted ones takes from it."""
        program = self._forward.get(wanted, lambda: self._forward_program(leaves, wanted))
        result, pullback = program(*leaves)
        places = tuple(s if isinstance(s := committed_sharding(leaf), NamedSharding) else None for leaf in leaves)
        return result, Residuals(pullback, wanted, places)

    def backward(self, residuals: Residuals, cotangents: Any) -> tuple[Any, ...]:
        """The cotangents of the leaves, None for those that are not wanted."""
        given, tree = jax.tree.flatten(cotangents, is_leaf=lambda c: isinstance(c, SymbolicZero))
        zeros = tuple(_zero_type(c) for c in given)
        places = tuple(p for p, w in zip(residuals.places, residuals.wanted, strict=True) if w)
        key = (tree, zeros, residuals.wanted, residuals.places)
        program = self._backward.get(key, lambda: self._backward_program(tree, zeros, places))
        nonzero = [c for c, z in zip(given, zeros, strict=True) if z is None]
        found = iter(program(residuals.pullback, nonzero))
        return tuple(next(found) if w else None for w in residuals.wanted)

    def tangents(self, residuals: Residuals, moving: Sequence[Any], tree: Any, types: tuple[Any, ...]) -> list[Any]:
        """The tangents of the results that have any, for those of the wanted leaves: the pullback's own transpose.

        tree and types: of the results' tangents.
        """
        program = self._tangents.get((tree, types), lambda: self._tangents_program(tree, types))
        found: list[Any] = program(residuals.pullback, list(moving))
        return found

    def _tangents_program(self, tree: Any, types: tuple[Any, ...]) -> Planned:
        varying = [i for i, type_ in enumerate(types) if type_.dtype != jax.dtypes.float0]

        def tangents(pullback: Any, moving: list[Any]) -> Any:
            def backward(cotangents: list[Any]) -> Any:
                every = [_zeros(t.shape, t.dtype) for t in types]
                for i, cotangent in zip(varying, cotangents, strict=True):
                    every[i] = cotangent
                return list(pullback(jax.tree.unflatten(tree, every)))

            given = [jax.ShapeDtypeStruct(types[i].shape, types[i].dtype) for i in varying]
            (found,) = jax.linear_transpose(backward, given)(moving)
            return found

        return self._jit(tangents, "tangents", {})

    def _forward_program(self, leaves: Sequence[Any], wanted: tuple[bool, ...]) -> Planned:
        def forward(*leaves: Any) -> Any:
            def of_wanted(*active: Any) -> Any:
                rest = iter(active)
                every = [next(rest) if w else leaf for leaf, w in zip(leaves, wanted, strict=True)]
                args, kwargs = self.arguments(every)
                return self.function.fun(*args, **kwargs)

            return jax.vjp(of_wanted, *[leaf for leaf, w in zip(leaves, wanted, strict=True) if w])

        return self._jit(forward, "forward", self._forward_shardings(leaves))

    def _forward_shardings(self, leaves: Sequence[Any]) -> dict[str, Any]:
        """The shardings stated for the function, for its forward program; none if it cannot be planned."""
        args, kwargs = self.arguments([jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves])
        try:
            stated = JaxCallingConvention.of(self.function.lower_unplanned(*args, **kwargs))
        except EggshardError:
            return {}
        shardings: dict[str, Any] = {}
        if self.function.states_inputs:
            shardings["in_shardings"] = stated.argument_shardings
        if any(s is not None for s in stated.result_shardings):
            shardings["out_shardings"] = (self.function.stated_outputs(stated), None)
        return shardings

    def _backward_program(self, tree: Any, zeros: Sequence[Any], places: tuple[Any, ...]) -> Planned:
        def backward(pullback: Any, nonzero: list[Any]) -> Any:
            rest = iter(nonzero)
            return pullback(jax.tree.unflatten(tree, [next(rest) if z is None else _zeros(*z) for z in zeros]))

        return self._jit(backward, "backward", {"out_shardings": places} if any(places) else {})

    def _jit(self, program: Callable[..., Any], which: str, shardings: dict[str, Any]) -> Planned:
        program.__name__ = f"{self.function.__name__}_{which}"
        return self.function.derived(program, shardings)


def _zero_type(cotangent: Any) -> tuple[tuple[int, ...], Any] | None:
    """Shape and element type of a cotangent that is known to be zero; None for others."""
    type_ = cotangent.aval if isinstance(cotangent, SymbolicZero) else cotangent
    known = isinstance(cotangent, SymbolicZero) or cotangent.dtype == jax.dtypes.float0
    return (tuple(type_.shape), type_.dtype) if known else None


def _zeros(shape: tuple[int, ...], dtype: Any) -> Any:
    return np.zeros(shape, dtype) if dtype == jax.dtypes.float0 else jax.numpy.zeros(shape, dtype)


def _typed(value: Any, type_: Any) -> Any:
    """A value at the sharding that its type states, as types of meshes with explicit axes do."""
    stated = type_.sharding
    return jax.sharding.reshard(value, stated) if AxisType.Explicit in stated.mesh.axis_types else value
