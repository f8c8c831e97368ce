"""`jit`: a drop-in for `jax.jit` that plans the function's communication, and its gradient's."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import jax
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.sharding import NamedSharding

from eggshard.costmodel import CostModel
from eggshard.errors import EggshardWarning, LoweringError, ProgramError
from eggshard.limits import Limits
from eggshard.lower.jax_callable import CallingConvention, PlannedFunction, mesh_in_effect
from eggshard.lower.jax_primitive import TransformationError, is_batched, whole_programs
from eggshard.plan.plan import Plan

#: True while a function is lowered in order to be planned: planned functions inside it are part of its program.
_planning: contextvars.ContextVar[bool] = contextvars.ContextVar("planning", default=False)


@dataclass(frozen=True)
class _PlanOptions:
    """What `eggshard.optimize` is told."""

    cost_model: CostModel | None = None
    rewrites: Sequence[Any] | None = None
    limits: Limits | None = None
    memory_limit: int | None = None
    exact: bool = False

    def plan(self, lowered: jax.stages.Lowered) -> Plan:
        from eggshard.optimization import optimize

        return optimize(
            lowered,
            cost_model=self.cost_model,
            rewrites=self.rewrites,
            limits=self.limits,
            memory_limit=self.memory_limit,
            exact=self.exact,
        )


@overload
def jit(fun: Callable[..., Any], **options: Any) -> JitFunction: ...
@overload
def jit(fun: None = None, **options: Any) -> Callable[[Callable[..., Any]], JitFunction]: ...
def jit(
    fun: Callable[..., Any] | None = None,
    *,
    in_shardings: Any = None,
    out_shardings: Any = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Sequence[str] | None = None,
    keep_unused: bool = False,
    inline: bool = False,
    compiler_options: dict[str, Any] | None = None,
    cost_model: CostModel | None = None,
    rewrites: Sequence[Any] | None = None,
    limits: Limits | None = None,
    memory_limit: int | None = None,
    exact: bool = False,
) -> Any:
    """`jax.jit`, with the communication planned by `eggshard.optimize`.

    The first group of options is `jax.jit`'s, the last one `optimize`'s. Shardings that are not given are those of the
    arguments, as in `jax.jit`. One plan is made per combination of argument types, shardings and static values.

    Differentiating the function in reverse mode plans the forward and the backward program, each by itself; planning
    the differentiated function, ``eggshard.jit(jax.value_and_grad(f))``, plans both together and is never worse.
    Inside another ``eggshard.jit`` it is part of that one's program. Inside a plain `jax.jit` it is planned where the
    shardings of its arguments are known there: by ``in_shardings``, or by explicit axis types; elsewhere it is what
    `jax.jit` makes of it. `TransformationError` under `jax.vmap`: write ``eggshard.jit(jax.vmap(f))``.

    A function that cannot be planned (host callbacks, ordered effects, ops of unknown meaning) runs as `jax.jit` would
    run it, with an EggshardWarning.
    """
    options = _PlanOptions(cost_model, rewrites, limits, memory_limit, exact)
    common = {
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
        "keep_unused": keep_unused,
        "compiler_options": compiler_options,
    }
    shardings = {k: v for k, v in (("in_shardings", in_shardings), ("out_shardings", out_shardings)) if v is not None}

    def wrap(function: Callable[..., Any]) -> JitFunction:
        return JitFunction(function, {**common, "inline": inline, **shardings}, common, options)

    return wrap if fun is None else wrap(fun)


class JitFunction:
    """What `jit` returns: call it like the function."""

    def __init__(
        self, fun: Callable[..., Any], jit_options: dict[str, Any], common: dict[str, Any], options: _PlanOptions
    ):
        functools.update_wrapper(self, fun)
        self._fun, self._common, self._options = fun, common, options
        self._states_inputs = "in_shardings" in jit_options

        # A wrapper of its own, so that JAX shares no cached trace with a jit of the same function elsewhere.
        @functools.wraps(fun)
        def function(*args: Any, **kwargs: Any) -> Any:
            return fun(*args, **kwargs)

        self._unplanned = jax.jit(function, **jit_options)
        self._by_shardings: dict[Any, Any] = {}
        self._plans: dict[str, Plan] = {}
        self._gradients: dict[Any, tuple[JitFunction, Callable[..., Any]]] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result. TransformationError under vmap."""
        leaves, tree = jax.tree.flatten((args, kwargs))
        if not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            if jax.config.jax_disable_jit:
                return self._fun(*args, **kwargs)
            return self._jitted(leaves, tree)(*args, **kwargs)
        if _planning.get():
            return self._unplanned(*args, **kwargs)
        if any(is_batched(leaf) for leaf in leaves):
            raise TransformationError(
                f"{self.__name__} is planned for unbatched arrays and cannot be vmapped; apply jax.vmap inside, "
                "e.g. eggshard.jit(jax.vmap(f))"
            )
        return self._differentiable(leaves, tree)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def lower(self, *args: Any, **kwargs: Any) -> jax.stages.Lowered:
        """The planned function lowered for these arguments, as `jax.jit(f).lower` does for f."""
        leaves, tree = jax.tree.flatten((args, kwargs))
        lowered: jax.stages.Lowered = self._jitted(leaves, tree).lower(*args, **kwargs)
        return lowered

    def plan(self, *args: Any, **kwargs: Any) -> Plan:
        """The plan for these arguments (arrays, or `jax.ShapeDtypeStruct`s with shardings)."""
        plan, convention = self._plan(self._lower_unplanned(*args, **kwargs))
        return replace(plan, calling_convention=convention)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """The types of the results, without computing anything."""
        return self._unplanned.eval_shape(*args, **kwargs)

    def clear_cache(self) -> None:
        """Forget all plans and compiled programs."""
        self._unplanned.clear_cache()
        self._by_shardings.clear()
        self._plans.clear()
        self._gradients.clear()

    def _lower_unplanned(self, *args: Any, **kwargs: Any) -> jax.stages.Lowered:
        token = _planning.set(True)
        try:
            with whole_programs():
                return self._unplanned.lower(*args, **kwargs)
        finally:
            _planning.reset(token)

    def _plan(self, lowered: jax.stages.Lowered) -> tuple[Plan, CallingConvention]:
        convention = CallingConvention.of(lowered)
        text = lowered.as_text()
        if text not in self._plans:
            self._plans[text] = self._options.plan(lowered)
        return self._plans[text], convention

    def _jitted(self, leaves: Sequence[Any], tree: Any) -> Any:
        """A `jax.jit` that plans when it is traced; one per combination of argument shardings.

        JAX traces once per combination of types and static values, but says nothing of shardings to what it traces.
        """
        shardings = tuple(_stated_sharding(leaf) for leaf in leaves)
        mesh = mesh_in_effect()
        key = (tree, shardings, mesh)
        found = self._by_shardings.get(key)
        if found is None:

            @functools.wraps(self._fun)
            def planned(*args: Any, **kwargs: Any) -> Any:
                return self._traced(args, kwargs, shardings, mesh)

            found = self._by_shardings[key] = jax.jit(planned, **self._common)
        return found

    def _traced(self, args: Any, kwargs: Any, shardings: Sequence[Any], mesh: Any) -> Any:
        """The planned function on tracers, whose arguments lie as ``shardings`` say (None: not known)."""
        leaves, tree = jax.tree.flatten((args, kwargs))
        dynamic = [isinstance(leaf, jax.core.Tracer) for leaf in leaves]
        described = [
            _described(leaf, s) if d else leaf for leaf, s, d in zip(leaves, shardings, dynamic, strict=True)
        ]
        given, named = jax.tree.unflatten(tree, described)
        lowered = self._lower_unplanned(*given, **named)
        try:
            plan, convention = self._plan(lowered)
            planned = PlannedFunction(plan, convention)
        except (ProgramError, LoweringError) as error:
            warnings.warn(
                f"{self.__name__} cannot be planned and runs as jax.jit would run it: {error}", EggshardWarning, stacklevel=2
            )
            return self._unplanned(*args, **kwargs)
        results = planned.apply(*[leaf for leaf, d in zip(leaves, dynamic, strict=True) if d])
        if plan.mesh.size > 1:
            at = [s for s, d in zip(shardings, dynamic, strict=True) if d]
            where = planned.jax_mesh(at, mesh)
            # This also tells JAX the devices, where no argument does.
            results = [_constrained(r, s) for r, s in zip(results, planned.output_shardings(where), strict=True)]
        return jax.tree.unflatten(convention.out_tree, results)
