"""`JitFunction`: what `eggshard.jit` makes of a function, whose communication it plans, and its gradient's."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import hashlib
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, TypeVar

import jax
from jax.sharding import NamedSharding

import eggshard.planning as planning
from eggshard.api import Plan
from eggshard.emit.jax_primitive import axes_are_named, is_batched, whole_programs
from eggshard.engines.jax.agreement import planned_once
from eggshard.engines.jax.arguments import (
    UNKNOWN,
    Statics,
    constrained,
    described,
    explicit_sharding,
    put,
    stated_sharding,
    type_key,
)
from eggshard.engines.jax.batching import with_batching
from eggshard.engines.jax.caches import LruCache
from eggshard.engines.jax.callable import PlannedFunction
from eggshard.engines.jax.meshes import lowered_on, mesh_in_effect
from eggshard.engines.jax.open_shardings import Chosen, OpenShardings
from eggshard.engines.jax.unstated import with_propagated
from eggshard.errors import (
    CostModelError,
    EggshardError,
    EngineError,
    FallbackWarning,
    GuardWarning,
    LimitError,
    LoweringError,
    ProgramError,
    RewriteError,
)
from eggshard.frontends.jax.calling_convention import HOST, JaxCallingConvention
from eggshard.limits import Guard
from eggshard.settings import config

if TYPE_CHECKING:
    from eggshard.engines.jax.comparison import Comparison

#: Errors of what the user gave beside the function, which XLA's program would hide.
_USERS = (CostModelError, EngineError, LimitError, RewriteError)
#: How JAX writes that an array within a function is to lie in the host's memory.
_IN_HOST_MEMORY = re.compile(r'_xla_buffer_placement = "\w*host"')
_UNPLANNED = "{} cannot be planned and runs as jax.jit would run it: {}"

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


P = ParamSpec("P")
R = TypeVar("R")


class Jitted(NamedTuple):
    """A `jax.jit` that plans when it is traced. placed: where results are put that XLA leaves elsewhere, by number."""

    function: Any
    placed: dict[int, Any]


class JitFunction(Generic[P, R]):
    """The callable that `eggshard.jit` returns, to be called like the function."""

    __name__: str

    def __init__(
        self, fun: Callable[P, R], common: dict[str, Any], shardings: dict[str, Any], options: dict[str, Any],
        guard: bool | Guard | None, cache_size: int, free: bool = False, opened: OpenShardings | None = None,
    ):
        """common, shardings: of `jax.jit`. options: of `eggshard.optimize`. guard, cache_size: as of `jit`.

        free: results whose sharding is not stated lie where that is cheapest. opened: what else of the shardings is to
        be chosen.
        """
        functools.update_wrapper(self, fun)
        self.__name__ = getattr(fun, "__name__", type(fun).__name__)
        self.fun, self.options = fun, options
        self._guard = guard
        self.states_inputs, self.cache_size, self._free = "in_shardings" in shardings, cache_size, free
        self._common, self._opened = common, opened
        self._statics = Statics.of(fun, common["static_argnums"], common["static_argnames"])

        # A wrapper of its own, so that JAX shares no cached trace with a jit of the same function elsewhere.
        def function(*args: Any, **kwargs: Any) -> Any:
            return fun(*args, **kwargs)

        self._function, self._shardings = self._named(function), shardings
        self.unplanned = jax.jit(self._function, **common, **shardings)
        self._pinned: LruCache[Any] = LruCache(cache_size)
        self._chosen: LruCache[Chosen] = LruCache(cache_size)
        self._jitted_by: LruCache[Jitted] = LruCache(cache_size)
        self._plans: LruCache[Plan] = LruCache(cache_size)
        self._differentiable: LruCache[Callable[..., Any]] = LruCache(cache_size)
        self._batched: LruCache[Callable[..., Any]] = LruCache(cache_size)

    @property
    def guard(self) -> Guard | None:
        """How much worse a plan may be than XLA's program; None where they are not compared."""
        given = config.guard if self._guard is None else self._guard
        return Guard() if given is True else given or None

    def derived(self, program: Callable[..., Any], shardings: dict[str, Any]) -> JitFunction[..., Any]:
        """Return the wrapper of another function without static arguments, planned with this one's options.

        Its results lie where that is cheapest, unless these shardings say otherwise.
        """
        return JitFunction(program, {"static_argnums": None, "static_argnames": None}, shardings, self.options,
                           self._guard, self.cache_size, free=True)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the planned function and return its result."""
        return self._apply(args, kwargs)  # type: ignore[no-any-return]

    def _apply(self, args: Any, kwargs: Any) -> Any:
        leaves, tree = jax.tree.flatten((args, kwargs))
        if not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            if jax.config.jax_disable_jit:
                return self.fun(*args, **kwargs)
            if self._opened is not None:
                try:
                    args, kwargs = self._arranged(args, kwargs, to_run=True)
                except (LoweringError, ProgramError) as error:
                    warnings.warn(_UNPLANNED.format(self.__name__, error), FallbackWarning, stacklevel=3)
                    return self.unplanned(*args, **kwargs)
                leaves = jax.tree.leaves((args, kwargs))
            return self._call(leaves, tree, args, kwargs)
        if _planning.get():
            return self.unplanned(*args, **kwargs)
        static, dynamic = self._statics.split(args, kwargs)
        leaves, tree = jax.tree.flatten(dynamic)
        function = self._differentiable.get((static, tree), lambda: _with_gradient(self, static, tree))
        return function(*leaves)

    def __repr__(self) -> str:
        return f"<eggshard.jit of {self.__name__}>"

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def trace(self, *args: Any, **kwargs: Any) -> jax.stages.Traced:
        """Trace the planned function for these arguments, as `jax.jit(f).trace` does f."""
        leaves, tree = jax.tree.flatten((args, kwargs))
        return self._jitted(self._key(leaves, tree, args, kwargs)).function.trace(*args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> jax.stages.Lowered:
        """Lower the planned function for these arguments, as `jax.jit(f).lower` does f."""
        return self.trace(*args, **kwargs).lower()

    def plan(self, *args: Any, **kwargs: Any) -> Plan:
        """Return the plan for these arguments (arrays, or `jax.ShapeDtypeStruct`s with shardings)."""
        plan, convention = self._plan(args, kwargs)
        return replace(plan, calling_convention=convention)

    def comparison(self, *args: Any, **kwargs: Any) -> Comparison:
        """Compare the plan for these arguments with XLA's own program, as ``guard`` does. Compiled once per process."""
        from eggshard.engines.jax.guard import compared

        return compared(self.plan(*args, **kwargs))

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Return the types of the results, without computing anything."""
        return self.unplanned.eval_shape(*args, **kwargs)

    def clear_cache(self) -> None:
        """Forget all plans and compiled programs, and return their memory once nothing else uses them."""
        self.unplanned.clear_cache()
        self._jitted_by.clear()
        self._plans.clear()
        self._pinned.clear()
        self._chosen.clear()
        self._differentiable.clear()
        self._batched.clear()

    def lower_unplanned(self, *args: Any, **kwargs: Any) -> jax.stages.Lowered:
        """What is planned for these arguments: the function as `jax.jit` lowers it.

        Results whose sharding is not stated lie where `jax.jit` would put them. Those that take a donated argument's
        buffer lie where that argument lies: a state that is passed through again and again then keeps its place.
        """
        with _planning_one():
            chosen = None if self._opened is None else self.chosen(*args, **kwargs)
            if chosen is not None:
                args, kwargs = self._arranged(args, kwargs)
            lowered = lowered_on(chosen and chosen.mesh, self.unplanned, args, kwargs)
            convention = JaxCallingConvention.of(lowered)
            if chosen is not None:
                places: tuple[NamedSharding | None, ...] = chosen.results
            else:
                places = convention.places_of_donated()
                places = places if self._free else with_propagated(lowered, convention, places)
            if places == convention.result_shardings:
                return lowered
            given = self._common | self._shardings | {"out_shardings": jax.tree.unflatten(convention.out_tree, places)}
            pinned = self._pinned.get((convention.out_tree, places), lambda: jax.jit(self._function, **given))
            return lowered_on(chosen and chosen.mesh, pinned, args, kwargs)

    def chosen(self, *args: Any, **kwargs: Any) -> Chosen:
        """Where arguments and results of these types are to lie, where that is to be chosen."""
        assert self._opened is not None
        static, dynamic = self._statics.split(args, kwargs)
        leaves, tree = jax.tree.flatten(dynamic)
        opened, devices = self._opened, self._opened.devices

        def choice() -> Chosen:
            types = [described(leaf, None) for leaf in leaves]
            given, named = self.rebuild(static, jax.tree.unflatten(tree, types))
            with _planning_one():
                return opened.choose(self.unplanned.lower(*given, **named), self.options)

        return self._chosen.get((tree, tuple(map(type_key, leaves)), static, devices, config.key()), choice)

    def _arranged(self, args: Any, kwargs: Any, to_run: bool = False) -> tuple[Any, Any]:
        """The arguments where they are to lie; those that lie elsewhere are moved."""
        chosen = self.chosen(*args, **kwargs)
        static, dynamic = self._statics.split(args, kwargs)
        leaves, tree = jax.tree.flatten(dynamic)
        return self.rebuild(static, jax.tree.unflatten(tree, chosen.arranged(leaves, to_run)))

    def traced(self, args: Any, kwargs: Any) -> Any:
        """The function on tracers inside a trace that is not its own: planned where shardings are known."""
        leaves = jax.tree.leaves((args, kwargs))
        if not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return self(*args, **kwargs)
        static, dynamic = self._statics.split(args, kwargs)
        leaves, tree = jax.tree.flatten(dynamic)
        if any(is_batched(leaf) for leaf in leaves) and not axes_are_named():
            return self._batched.get((static, tree), lambda: with_batching(self, static, tree))(*leaves)
        shardings = [explicit_sharding(leaf) for leaf in leaves]
        if _planning.get() or not (self.states_inputs or any(shardings)):
            return self.unplanned(*args, **kwargs)
        return self._traced(args, kwargs, shardings, None, constrain=True)

    def rebuild(self, static: Any, dynamic: Any) -> tuple[list[Any], dict[str, Any]]:
        """All arguments from the static ones and the others."""
        return self._statics.join(static, dynamic)

    def stated_outputs(self, convention: JaxCallingConvention) -> Any:
        """Where the results lie, as stated or propagated: a tree of shardings, or one that begins like theirs."""
        if self._free:  # the rest of its results is of no known structure
            return self._shardings.get("out_shardings")
        return jax.tree.unflatten(convention.out_tree, convention.result_shardings)

    def _named(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function under the name and signature of the user's, by which JAX resolves argument names."""
        functools.update_wrapper(function, self.fun)
        function.__name__ = self.__name__
        return function

    def _plan(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Plan, JaxCallingConvention]:
        lowered = self.lower_unplanned(*args, **kwargs)
        make: Callable[..., Plan] = planning.optimize
        if self._opened is not None:
            make = functools.partial(planning.optimized, known=self.chosen(*args, **kwargs).choice.known)
        convention = JaxCallingConvention.of(lowered)
        text = lowered.as_text()
        moved = len(_IN_HOST_MEMORY.findall(text))
        if moved > sum(leaf.memory == HOST for leaf in convention.results):
            raise LoweringError("it moves arrays to the host's memory and back")
        digest = hashlib.sha256(text.encode()).hexdigest()
        plan = self._plans.get((digest, config.key()), lambda: Plan.of(planned_once(
            convention.devices, text, lambda: make(lowered, **self.options))))
        return plan, convention

    def _call(self, leaves: Sequence[Any], tree: Any, args: Any, kwargs: Any) -> Any:
        """The planned function on arrays, or XLA's own program where XLA cannot compile the plan."""
        key = self._key(leaves, tree, args, kwargs)
        function, placed = self._jitted(key)
        try:
            results = function(*args, **kwargs)
            return put(results, placed) if placed else results
        except (ProgramError, jax.errors.JaxRuntimeError) as error:
            deleted = any(isinstance(leaf, jax.Array) and leaf.is_deleted() for leaf in leaves)
            if function is self.unplanned or deleted or _compiles(function, args, kwargs):
                raise
            reason = str(error).strip().partition("\n")[0]
        warnings.warn(f"XLA does not compile the plan of {self.__name__}, which runs as jax.jit would run it: {reason}",
                      FallbackWarning, stacklevel=3)
        return self._jitted_by.put(key, Jitted(self.unplanned, {})).function(*args, **kwargs)

    def _key(self, leaves: Sequence[Any], tree: Any, args: Any, kwargs: Any) -> Any:
        """What one `jax.jit` is made for: types and shardings of the arguments, static values and the mesh in effect.

        JAX traces once per combination of types and static values, but says nothing of shardings to what it traces.
        """
        static = self._statics.split(args, kwargs)[0] if self._statics else None
        try:
            hash(static)
        except TypeError:  # which JAX refuses
            static = None
        shardings, types = tuple(map(stated_sharding, leaves)), tuple(map(type_key, leaves))
        return tree, shardings, types, mesh_in_effect(), config.key(), static

    def _jitted(self, key: Any) -> Jitted:
        return self._jitted_by.get(key, lambda: self._new_jitted(key[0], key[1], key[3]))

    def _new_jitted(self, tree: Any, shardings: Sequence[Any], mesh: Any) -> Jitted:
        placed: dict[int, Any] = {}

        def planned(*args: Any, **kwargs: Any) -> Any:
            given, named = jax.tree.unflatten(tree, shardings)
            at = jax.tree.leaves(self._statics.split(given, named)[1], is_leaf=lambda s: s is UNKNOWN)
            return self._traced(args, kwargs, [None if s is UNKNOWN else s for s in at], mesh, True, placed)

        return Jitted(jax.jit(self._named(planned), **self._common), placed)

    def _traced(
        self, args: Any, kwargs: Any, shardings: Sequence[Any], mesh: Any, constrain: bool = False,
        placed: dict[int, Any] | None = None,
    ) -> Any:
        """The planned function on tracers, whose dynamic leaves lie as ``shardings`` say (None: not known).

        placed: takes up where results are to be put that XLA leaves elsewhere.
        """
        static, dynamic = self._statics.split(args, kwargs)
        leaves, tree = jax.tree.flatten(dynamic)
        types = [described(leaf, s) for leaf, s in zip(leaves, shardings, strict=True)]
        given, named = self.rebuild(static, jax.tree.unflatten(tree, types))
        planning.begin(self.options["rewrites"])  # while JAX traces and lowers
        try:
            plan, convention = self._plan(given, named)
            planned = PlannedFunction(plan, convention)
        except EggshardError as error:
            if isinstance(error, _USERS) and not (isinstance(error, RewriteError) and self.options["rewrites"] is None):
                raise
            warnings.warn(_UNPLANNED.format(self.__name__, error), FallbackWarning, stacklevel=2)
            return self.unplanned(*args, **kwargs)
        if self.guard and self._is_worse(replace(plan, calling_convention=convention), self.guard):
            own = self._pinned.peek((convention.out_tree, convention.result_shardings), self.unplanned)
            return own(*args, **kwargs)
        results = planned.apply(*leaves)
        if constrain and plan.mesh.size > 1:
            # This also tells JAX the devices, where no argument does.
            where = planned.output_shardings(planned.jax_mesh(shardings, mesh))
            results = [constrained(r, s) for r, s in zip(results, where, strict=True)]
            if placed is not None:
                placed.update(planned.without_elements(where))
        return jax.tree.unflatten(convention.out_tree, results)

    def _is_worse(self, plan: Plan, guard: Guard) -> bool:
        """Whether XLA's own program is better than the plan; a warning says so, or that they cannot be compared."""
        from eggshard.engines.jax.guard import compared, reason

        try:
            comparison = compared(plan)
        except EggshardError as error:
            warnings.warn(f"{self.__name__} is not held against XLA's program: {error}", GuardWarning, stacklevel=3)
            return False
        excesses = comparison.excesses(guard)
        if excesses:
            warnings.warn(reason(self.__name__, comparison, excesses), GuardWarning, stacklevel=3)
        return bool(excesses)


def _with_gradient(function: JitFunction[..., Any], static: Any, tree: Any) -> Callable[..., Any]:
    from eggshard.engines.jax.gradient import with_gradient

    return with_gradient(function, static, tree)


def _compiles(function: Any, args: Any, kwargs: Any) -> bool:
    """Whether a jitted function compiles for these arguments, so that an error of calling it came from its run."""
    try:
        function.lower(*args, **kwargs).compile()
    except (EggshardError, jax.errors.JaxRuntimeError):
        return False
    return True
