"""`jit`: a drop-in for `jax.jit` that plans the function's communication, and its gradient's."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import AxisType

import eggshard.api as api
from eggshard.api import Plan
from eggshard.costmodel import CostModel
from eggshard.emit.jax_primitive import TransformationError, is_batched, whole_programs
from eggshard.engines.jax.agreement import planned_once
from eggshard.engines.jax.callable import PlannedFunction, committed_sharding, mesh_in_effect
from eggshard.errors import EggshardError, EggshardWarning, LimitError, LoweringError, ProgramError
from eggshard.frontends.jax.calling_convention import JaxCallingConvention
from eggshard.limits import Guard, Limits

if TYPE_CHECKING:
    from eggshard.engines.jax.comparison import Comparison

#: True while a function is lowered in order to be planned: planned functions inside it are part of its program.
_planning: contextvars.ContextVar[bool] = contextvars.ContextVar("planning", default=False)


@contextlib.contextmanager
def _planning_one() -> Iterator[None]:
    token = _planning.set(True)
    try:
        with whole_programs():
            yield
    finally:
        _planning.reset(token)


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
    cost_model: CostModel | str | None = None,
    rewrites: Sequence[Any] | None = None,
    limits: Limits | None = None,
    memory_limit: int | None = None,
    exact: bool = False,
    guard: bool | Guard = False,
) -> Any:
    """`jax.jit`, with the communication planned by `eggshard.optimize`.

    The first group of options is `jax.jit`'s, the last one `optimize`'s, and ``guard``. Shardings that are not given
    are those of the arguments, as in `jax.jit`. One plan is made per combination of argument types, shardings and
    static values.

    Differentiating the function in reverse mode plans the forward and the backward program, each by itself; planning
    the differentiated function, ``eggshard.jit(jax.value_and_grad(f))``, plans both together and is never worse.
    Inside another ``eggshard.jit`` it is part of that one's program. Inside a plain `jax.jit` it is planned where the
    shardings of its arguments are known there: by ``in_shardings``, or by explicit axis types; elsewhere it is what
    `jax.jit` makes of it. `TransformationError` under `jax.vmap` and in forward mode: write
    ``eggshard.jit(jax.vmap(f))``.

    guard: compile plan and XLA's own program for every plan that is made, and where the plan is worse by more than a
    `Guard` allows (for True the default one: 2 % of the modelled time; 10 % of flops or peak memory, unless the
    modelled time falls by 10 %), run XLA's program, with an EggshardWarning that says so. The choice is made when the
    function is traced, for the forward and the backward program each, and remembered in the process; `comparison` shows
    what it goes by, compile times included.

    A function that cannot be planned (ordered effects, mutable arrays, ops of unknown meaning) runs as `jax.jit` would
    run it, with an EggshardWarning.
    """
    if fun is not None and not callable(fun):
        raise ProgramError(f"eggshard.jit takes a function, not {type(fun).__name__}; options are given by name")
    if not isinstance(guard, (bool, Guard)):
        raise LimitError(f"guard={guard!r} is neither a bool nor an eggshard.Guard")
    options = {
        "cost_model": cost_model, "rewrites": rewrites, "limits": limits, "memory_limit": memory_limit, "exact": exact,
    }
    common = {
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
        "keep_unused": keep_unused,
        "inline": inline,
        "compiler_options": compiler_options,
    }
    shardings = {k: v for k, v in (("in_shardings", in_shardings), ("out_shardings", out_shardings)) if v is not None}

    def wrap(function: Callable[..., Any]) -> JitFunction:
        return JitFunction(function, common, shardings, options, guard)

    return wrap if fun is None else wrap(fun)


class JitFunction:
    """The callable that `jit` returns, to be called like the function."""

    __name__: str

    def __init__(
        self, fun: Callable[..., Any], common: dict[str, Any], shardings: dict[str, Any], options: dict[str, Any],
        guard: bool | Guard | None,
    ):
        """common, shardings: of `jax.jit`. options: of `eggshard.optimize`. guard: as of `jit`."""
        functools.update_wrapper(self, fun)
        self.__name__ = getattr(fun, "__name__", type(fun).__name__)
        self.fun, self.options = fun, options
        self.guard = Guard() if guard is True else guard or None
        self.states_inputs = "in_shardings" in shardings
        self._common = common
        self._statics = _Statics.of(fun, common["static_argnums"], common["static_argnames"])

        # A wrapper of its own, so that JAX shares no cached trace with a jit of the same function elsewhere.
        def function(*args: Any, **kwargs: Any) -> Any:
            return fun(*args, **kwargs)

        self._function, self._shardings = self._named(function), shardings
        self.unplanned = jax.jit(self._function, **common, **shardings)
        self._pinned: dict[Any, Any] = {}
        self._by_shardings: dict[Any, Any] = {}
        self._plans: dict[str, Plan] = {}
        self._differentiable: dict[Any, Callable[..., Any]] = {}

    def derived(self, program: Callable[..., Any], shardings: dict[str, Any]) -> JitFunction:
        """Return the wrapper of another function without static arguments, planned with this one's options."""
        return JitFunction(program, {"static_argnums": None, "static_argnames": None}, shardings, self.options,
                           self.guard)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the planned function and return its result. TransformationError under vmap."""
        leaves, tree = jax.tree.flatten((args, kwargs))
        if not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            if jax.config.jax_disable_jit:
                return self.fun(*args, **kwargs)
            return self._jitted(leaves, tree)(*args, **kwargs)
        if _planning.get():
            return self.unplanned(*args, **kwargs)
        if any(is_batched(leaf) for leaf in leaves):
            raise TransformationError(
                f"{self.__name__} is planned for unbatched arrays and cannot be vmapped; apply jax.vmap inside, "
                "e.g. eggshard.jit(jax.vmap(f))"
            )
        static, dynamic = self._statics.split(args, kwargs)
        leaves, tree = jax.tree.flatten(dynamic)
        if (static, tree) not in self._differentiable:
            from eggshard.engines.jax.gradient import with_gradient

            self._differentiable[static, tree] = with_gradient(self, static, tree)
        try:
            return self._differentiable[static, tree](*leaves)
        except TypeError as error:
            if "forward-mode" not in str(error):
                raise
            raise TransformationError(
                f"{self.__name__} is planned, and differentiable in reverse mode only; for jax.jvp, jax.jacfwd or "
                "jax.hessian apply them inside, e.g. eggshard.jit(jax.hessian(f))"
            ) from None

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def lower(self, *args: Any, **kwargs: Any) -> jax.stages.Lowered:
        """Lower the planned function for these arguments, as `jax.jit(f).lower` does for f."""
        leaves, tree = jax.tree.flatten((args, kwargs))
        return self._jitted(leaves, tree).lower(*args, **kwargs)

    def plan(self, *args: Any, **kwargs: Any) -> Plan:
        """Return the plan for these arguments (arrays, or `jax.ShapeDtypeStruct`s with shardings)."""
        plan, convention = self._plan(self.lower_unplanned(*args, **kwargs))
        return replace(plan, calling_convention=convention)

    def comparison(self, *args: Any, **kwargs: Any) -> Comparison:
        """Compare the plan for these arguments with XLA's own program, as ``guard`` does. Compiled once per process."""
        from eggshard.engines.jax.guard import compared

        return compared(self.plan(*args, **kwargs))

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Return the types of the results, without computing anything."""
        return self.unplanned.eval_shape(*args, **kwargs)

    def clear_cache(self) -> None:
        """Forget all plans and compiled programs."""
        self.unplanned.clear_cache()
        self._by_shardings.clear()
        self._plans.clear()
        self._pinned.clear()
        self._differentiable.clear()

    def lower_unplanned(self, *args: Any, **kwargs: Any) -> jax.stages.Lowered:
        """What is planned for these arguments: the function as `jax.jit` lowers it.

        Results that take a donated argument's buffer, and whose sharding is not stated, lie where that argument lies:
        a state that is passed through again and again then keeps its place.
        """
        with _planning_one():
            lowered = self.unplanned.lower(*args, **kwargs)
            convention = JaxCallingConvention.of(lowered)
            places = convention.places_of_donated()
            if places == convention.result_shardings:
                return lowered
            if (convention.out_tree, places) not in self._pinned:
                out_shardings = jax.tree.unflatten(convention.out_tree, places)
                options = {**self._common, **self._shardings, "out_shardings": out_shardings}
                self._pinned[convention.out_tree, places] = jax.jit(self._function, **options)
            return self._pinned[convention.out_tree, places].lower(*args, **kwargs)

    def traced(self, args: Any, kwargs: Any) -> Any:
        """The function on tracers inside a trace that is not its own: planned where shardings are known."""
        leaves = jax.tree.leaves((args, kwargs))
        if not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return self(*args, **kwargs)
        shardings = [_explicit_sharding(leaf) for leaf in jax.tree.leaves(self._statics.split(args, kwargs)[1])]
        if _planning.get() or not (self.states_inputs or any(shardings)):
            return self.unplanned(*args, **kwargs)
        return self._traced(args, kwargs, shardings, None)

    def rebuild(self, static: Any, dynamic: Any) -> tuple[list[Any], dict[str, Any]]:
        """All arguments from the static ones and the others."""
        return self._statics.join(static, dynamic)

    def _named(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function under the name and signature of the user's, by which JAX resolves argument names."""
        functools.update_wrapper(function, self.fun)
        function.__name__ = self.__name__
        return function

    def _plan(self, lowered: jax.stages.Lowered) -> tuple[Plan, JaxCallingConvention]:
        convention = JaxCallingConvention.of(lowered)
        text = lowered.as_text()
        if text not in self._plans:
            self._plans[text] = Plan.of(planned_once(
                convention.devices, text, lambda: api.optimize(lowered, **self.options)))
        return self._plans[text], convention

    def _jitted(self, leaves: Sequence[Any], tree: Any) -> Any:
        """A `jax.jit` that plans when it is traced; one per combination of argument shardings.

        JAX traces once per combination of types and static values, but says nothing of shardings to what it traces.
        """
        key = (tree, tuple(map(_stated_sharding, leaves)), mesh_in_effect())
        found = self._by_shardings.get(key)
        if found is None:
            found = self._by_shardings[key] = self._new_jitted(*key)
        return found

    def _new_jitted(self, tree: Any, shardings: Sequence[Any], mesh: Any) -> Any:
        def planned(*args: Any, **kwargs: Any) -> Any:
            given, named = jax.tree.unflatten(tree, shardings)
            at = jax.tree.leaves(self._statics.split(given, named)[1], is_leaf=lambda s: s is _UNKNOWN)
            return self._traced(args, kwargs, [None if s is _UNKNOWN else s for s in at], mesh, constrain=True)

        return jax.jit(self._named(planned), **self._common)

    def _traced(self, args: Any, kwargs: Any, shardings: Sequence[Any], mesh: Any, constrain: bool = False) -> Any:
        """The planned function on tracers, whose dynamic leaves lie as ``shardings`` say (None: not known)."""
        static, dynamic = self._statics.split(args, kwargs)
        leaves, tree = jax.tree.flatten(dynamic)
        described = [_described(leaf, s) for leaf, s in zip(leaves, shardings, strict=True)]
        given, named = self.rebuild(static, jax.tree.unflatten(tree, described))
        try:
            plan, convention = self._plan(self.lower_unplanned(*given, **named))
            planned = PlannedFunction(plan, convention)
        except (ProgramError, LoweringError) as error:
            reason = f"{self.__name__} cannot be planned and runs as jax.jit would run it: {error}"
            warnings.warn(reason, EggshardWarning, stacklevel=2)
            return self.unplanned(*args, **kwargs)
        if self.guard and self._is_worse(replace(plan, calling_convention=convention), self.guard):
            own = self._pinned.get((convention.out_tree, convention.result_shardings), self.unplanned)
            return own(*args, **kwargs)
        results = planned.apply(*leaves)
        if constrain and plan.mesh.size > 1:
            # This also tells JAX the devices, where no argument does.
            where = planned.output_shardings(planned.jax_mesh(shardings, mesh))
            results = [_constrained(r, s) for r, s in zip(results, where, strict=True)]
        return jax.tree.unflatten(convention.out_tree, results)

    def _is_worse(self, plan: Plan, guard: Guard) -> bool:
        """Whether XLA's own program is better than the plan; a warning says so, or that they cannot be compared."""
        from eggshard.engines.jax.guard import compared, reason

        try:
            comparison = compared(plan)
        except EggshardError as error:
            warnings.warn(f"{self.__name__} is not held against XLA's program: {error}", EggshardWarning, stacklevel=3)
            return False
        excesses = comparison.excesses(guard)
        if excesses:
            warnings.warn(reason(self.__name__, comparison, excesses), EggshardWarning, stacklevel=3)
        return bool(excesses)


class _Unknown:
    """Stands for the sharding of an argument that lies nowhere yet."""


_UNKNOWN = _Unknown()


@dataclass(frozen=True)
class _Statics:
    """Which arguments are static, by position and by name, as `jax.jit` resolves them."""

    positions: tuple[int, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, fun: Callable[..., Any], argnums: Any, argnames: Any) -> _Statics:
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

    def split(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, tuple[list[Any], dict[str, Any]]]:
        """(static, dynamic): hashable (position, value) and (name, value) pairs, and all other arguments."""
        if not self.positions and not self.names:
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


def _stated_sharding(leaf: Any) -> Any:
    """Where an argument lies if it must stay there, else `_UNKNOWN` (which, unlike None, is a leaf of a tree)."""
    sharding = leaf.sharding if isinstance(leaf, jax.ShapeDtypeStruct) else committed_sharding(leaf)
    return _UNKNOWN if sharding is None else sharding


def _explicit_sharding(leaf: Any) -> Any:
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


def _described(leaf: Any, sharding: Any) -> jax.ShapeDtypeStruct:
    aval = jax.typeof(leaf)
    weak = bool(getattr(aval, "weak_type", False))
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding, weak_type=weak)


def _constrained(array: Any, sharding: Any) -> Any:
    """The array held to a sharding; in explicit mode its type says it already."""
    if sharding is None or AxisType.Explicit in sharding.mesh.axis_types:
        return array
    return jax.lax.with_sharding_constraint(array, sharding)
