"""A JAX primitive that stands for a linear map, which knows what it makes of tangents and of cotangents.

This file and `jax_primitive` are the only ones that use JAX's interfaces for new primitives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax._src.util import weakref_cache_key_types
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir


@dataclass(frozen=True, eq=False)
class LinearMap:
    """A map from tangents of some arguments to tangents of types ``outputs``.

    transpose: what it makes of residuals and cotangents (`ad.Zero` where they are zero): cotangents of the tangents.
    evaluate: what it makes of residuals and tangents.
    """

    name: str
    residuals: int
    outputs: tuple[Any, ...]
    transpose: Callable[[list[Any], Sequence[Any]], Sequence[Any]]
    evaluate: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]

    def __call__(self, *operands: Any) -> list[Any]:
        return list(self.evaluate(operands[: self.residuals], operands[self.residuals :]))


#: As with `jax_primitive.DeviceModule`.
weakref_cache_key_types.add(LinearMap)


def apply_linear(map_: LinearMap, residuals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
    """The tangents of the outputs."""
    found: list[Any] = linear_p.bind(*residuals, *tangents, map_=map_)
    return found


linear_p = Primitive("planned_linear")
linear_p.multiple_results = True


def _run(*operands: Any, map_: LinearMap) -> list[Any]:
    return map_(*operands)


def _differentiate(primals: Sequence[Any], tangents: Sequence[Any], *, map_: LinearMap) -> Any:
    moving = [t.instantiate() if isinstance(t, ad.Zero) else t for t in tangents]
    return jax.jvp(map_, tuple(primals), tuple(moving))


def _batch(operands: Sequence[Any], dims: Sequence[Any], *, map_: LinearMap) -> Any:
    return jax.vmap(map_, tuple(dims))(*operands), [0] * len(map_.outputs)  # None: it is not batched


def _transpose(cotangents: Sequence[Any], *operands: Any, map_: LinearMap) -> list[Any]:
    found = map_.transpose(list(operands[: map_.residuals]), cotangents)
    return [None] * map_.residuals + [
        ad.Zero(operand.aval) if cotangent is None else cotangent
        for operand, cotangent in zip(operands[map_.residuals :], found, strict=True)
    ]


linear_p.def_impl(_run)
linear_p.def_abstract_eval(lambda *avals, map_: list(map_.outputs))
mlir.register_lowering(linear_p, mlir.lower_fun(_run, multiple_results=True))
ad.primitive_jvps[linear_p] = _differentiate
ad.primitive_transposes[linear_p] = _transpose
batching.primitive_batchers[linear_p] = _batch
