"""A JAX primitive that stands for a linear map of which only the transpose is known.

This file and `jax_primitive` are the only ones that use JAX's interfaces for new primitives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jax._src.util import weakref_cache_key_types
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from eggshard.emit.jax_primitive import TransformationError


@dataclass(frozen=True, eq=False)
class LinearMap:
    """A map from tangents of some arguments to tangents of types ``outputs``.

    transpose: what it makes of residuals and cotangents (`ad.Zero` where they are zero): cotangents of the tangents.
    """

    name: str
    residuals: int
    outputs: tuple[Any, ...]
    transpose: Callable[[list[Any], Sequence[Any]], Sequence[Any]]


#: As with `jax_primitive.DeviceModule`.
weakref_cache_key_types.add(LinearMap)


def apply_linear(map_: LinearMap, residuals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
    """The tangents of the outputs; TransformationError where they are asked for instead of being transposed."""
    found: list[Any] = linear_p.bind(*residuals, *tangents, map_=map_)
    return found


linear_p = Primitive("planned_linear")
linear_p.multiple_results = True


def _refused(*_: Any, map_: LinearMap, **__: Any) -> Any:
    raise TransformationError(
        f"{map_.name} is planned, and differentiable in reverse mode only; for jax.jvp, jax.linearize, jax.jacfwd or "
        "jax.hessian apply them inside, e.g. eggshard.jit(jax.hessian(f))"
    )


def _lower(context: Any, *operands: Any, map_: LinearMap) -> Any:
    return _refused(map_=map_)


def _transpose(cotangents: Sequence[Any], *operands: Any, map_: LinearMap) -> list[Any]:
    found = map_.transpose(list(operands[: map_.residuals]), cotangents)
    return [None] * map_.residuals + [
        ad.Zero(operand.aval) if cotangent is None else cotangent
        for operand, cotangent in zip(operands[map_.residuals :], found, strict=True)
    ]


linear_p.def_impl(_refused)
linear_p.def_abstract_eval(lambda *avals, map_: list(map_.outputs))
mlir.register_lowering(linear_p, _lower)
ad.primitive_jvps[linear_p] = _refused
ad.primitive_transposes[linear_p] = _transpose
batching.primitive_batchers[linear_p] = _refused
