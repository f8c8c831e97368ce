"""`jit`: a drop-in for `jax.jit` that plans the function's communication."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, Unpack, overload

from eggshard.costmodel import CostModel
from eggshard.engines.jax.open_shardings import OpenShardings
from eggshard.errors import LimitError, ProgramError, ShardingError
from eggshard.jit_function import JitFunction, P, R
from eggshard.limits import Guard, Limits
from eggshard.planner.choosing.narrowing import Tactic


class JitOptions(TypedDict, total=False):
    """What `jit` takes by name."""

    in_shardings: Any
    out_shardings: Any
    mesh: Any
    devices: Any
    carry: Mapping[int, int] | None
    tactics: Tactic | Sequence[Tactic]
    static_argnums: int | Sequence[int] | None
    static_argnames: str | Sequence[str] | None
    donate_argnums: int | Sequence[int] | None
    donate_argnames: str | Sequence[str] | None
    keep_unused: bool
    inline: bool
    compiler_options: dict[str, Any] | None
    cost_model: CostModel | str | None
    rewrites: Sequence[Any] | None
    limits: Limits | None
    effort: str | None
    memory_limit: int | None
    exact: bool
    guard: bool | Guard | None
    cache_size: int


@overload
def jit(fun: Callable[P, R], **options: Unpack[JitOptions]) -> JitFunction[P, R]: ...
@overload
def jit(fun: None = None, **options: Unpack[JitOptions]) -> Callable[[Callable[P, R]], JitFunction[P, R]]: ...
def jit(
    fun: Callable[..., Any] | None = None,
    *,
    in_shardings: Any = None,
    out_shardings: Any = None,
    mesh: Any = None,
    devices: Any = None,
    carry: Mapping[int, int] | None = None,
    tactics: Tactic | Sequence[Tactic] = (),
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
    effort: str | None = None,
    memory_limit: int | None = None,
    exact: bool = False,
    guard: bool | Guard | None = None,
    cache_size: int = 128,
) -> Any:
    """`jax.jit`, with the communication planned by `eggshard.optimize`.

    The first group of options is `jax.jit`'s, the last one `optimize`'s, ``guard`` and ``cache_size``. Shardings that
    are not given are those of the arguments, and of results where `jax.jit` would put them; only a result that takes a
    donated argument's buffer lies where that lies. One plan is made per combination of argument types, shardings and
    static values.

    Differentiating the function in reverse mode plans the forward and the backward program, each by itself; planning
    the differentiated function, ``eggshard.jit(jax.value_and_grad(f))``, plans both together and is never worse.
    Inside another ``eggshard.jit`` it is part of that one's program. Inside a plain `jax.jit` it is planned where the
    shardings of its arguments are known there: by ``in_shardings``, or by explicit axis types; elsewhere it is what
    `jax.jit` makes of it. Under `jax.vmap` the batched program is planned (not where the axis has a name), and in
    forward mode that of the tangents, too, each by itself.

    in_shardings, out_shardings: `eggshard.AUTO`, for all, for some leaves, or for entries of a ``PartitionSpec``, lets
    eggshard choose where arguments and results lie (`eggshard.auto`). Arguments that lie elsewhere are moved; results
    that are fed back lie where the arguments do that they become. mesh: on which; by default that of a stated sharding,
    or the one in effect; AUTO chooses it, too, of these devices (by default all). carry: {position of an argument:
    position of the result that becomes it in the next call}; by default results that take a donated argument's buffer,
    and trees of several leaves that are like an argument's. tactics: what is fixed of the choice, in order
    (`eggshard.tactics`).

    guard: compile plan and XLA's own program for every plan that is made, and where the plan is worse by more than a
    `Guard` allows (for True the default one: 2 % of the modelled time; 10 % of flops or peak memory, unless the
    modelled time falls by 10 %), run XLA's program, with a GuardWarning that says so; None: as `eggshard.config.guard`
    says. The choice is made when the function is traced, for the forward and the backward program each, and remembered
    in the process; `comparison` shows what it goes by, compile times included.

    cache_size: how many combinations are kept, with their plans and compiled programs; those not called for longest are
    forgotten first.

    A function that cannot be planned (ordered effects, mutable arrays, arrays moved to the host's memory inside, custom
    partitioning, what XLA does not compile) runs as `jax.jit` would run it, with a FallbackWarning.
    """
    if fun is not None and not callable(fun):
        raise ProgramError(f"eggshard.jit takes a function, not {type(fun).__name__}; options are given by name")
    if not isinstance(cache_size, int) or isinstance(cache_size, bool) or cache_size < 1:
        raise LimitError(f"cache_size={cache_size!r}; give a number of at least 1")
    if guard is not None and not isinstance(guard, (bool, Guard)):
        raise LimitError(f"guard={guard!r} is neither a bool nor an eggshard.Guard")
    options = {
        "cost_model": cost_model, "rewrites": rewrites, "limits": limits, "effort": effort,
        "memory_limit": memory_limit, "exact": exact,
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
    opened = None
    if any(map(OpenShardings.any_open, (in_shardings, out_shardings))):
        opened = OpenShardings(in_shardings, out_shardings, mesh, carry, _checked(tactics), devices)
    elif any(given is not None for given in (mesh, devices, carry)) or tactics:
        raise ShardingError(
            "mesh, devices, carry and tactics say how shardings are chosen: give in_shardings=eggshard.AUTO, too")
    shardings = {k: v for k, v in (("in_shardings", in_shardings), ("out_shardings", out_shardings)) if v is not None}

    def wrap(function: Callable[P, R]) -> JitFunction[P, R]:
        stated = opened.stated() if opened else shardings
        return JitFunction(function, common, stated, options, guard, cache_size, opened=opened)

    return wrap if fun is None else wrap(fun)


def _checked(tactics: Tactic | Sequence[Tactic]) -> Sequence[Tactic]:
    """The tactics; ShardingError for what is none."""
    given = [tactics] if isinstance(tactics, Tactic) else list(tactics)
    for tactic in given:
        if not isinstance(tactic, Tactic):
            raise ShardingError(f"{tactic!r} is no tactic; give a list of those of eggshard.tactics")
    return given
