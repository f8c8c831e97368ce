"""A JAX primitive that stands for a whole module; its lowering inserts the module's text into the caller's.

This file is the only one that uses JAX's interfaces for new primitives (`jax.interpreters`, `jax.extend.core`), which
promise less than the rest of JAX.
"""

from __future__ import annotations

import contextlib
import contextvars
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax._src.core import get_axis_env
from jax._src.interpreters.batching import BatchTracer
from jax._src.util import weakref_cache_key_types
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding
from jaxlib import lapack

from eggshard.errors import LoweringError, ProgramError
from eggshard.program.types import TensorType, numpy_dtype

#: How targets of custom calls begin that are the CPU's linear algebra, as either form of a custom call spells them.
_LAPACK = re.compile(r'[@"]lapack_')


class TransformationError(LoweringError, NotImplementedError):
    """A JAX transformation that a planned function does not have."""


@dataclass(frozen=True, eq=False)
class DeviceModule:
    """A module of ``devices`` partitions with one function ``main``; equal only to itself, so that it hashes fast.

    ``text`` writes it for a platform ("cpu", "tpu"; empty: for all of several).

    ``specs`` are the results' partition specs on meshes whose axes are named as in the program (None: inexpressible).
    ``weak``: which results are of a weak type (empty: none). ``whole`` gives the text of the unplanned program.
    ``callbacks`` are the Python functions that custom calls number, ``effects`` what JAX must know they do. ``placed``
    puts arrays on the devices, that lie on none yet.
    """

    name: str
    text: Callable[[str], str]
    devices: int
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    axes: tuple[tuple[str, int], ...]
    specs: tuple[Any, ...]
    weak: tuple[bool, ...] = ()
    whole: Callable[[], str] | None = None
    callbacks: tuple[Any, ...] = ()
    effects: frozenset[Any] = frozenset()
    placed: Callable[[Sequence[Any]], Sequence[Any]] = list

    @cached_property
    def function(self) -> Any:
        """The module as a jitted function, for calls outside of any trace."""
        return jax.jit(lambda *arrays: planned_p.bind(*arrays, module=self))


#: Parameters that JAX's caches hold weakly: they go when their functions go.
weakref_cache_key_types.add(DeviceModule)


def call_module(module: DeviceModule, arrays: Sequence[Any]) -> list[Any]:
    """The module's results on global arrays or tracers. LoweringError where a type is not the module's."""
    for i, (array, type_) in enumerate(zip(arrays, module.inputs, strict=True)):
        if tuple(np.shape(array)) != type_.shape or array.dtype != numpy_dtype(type_.dtype):
            got = f"{array.dtype}{list(np.shape(array))}"
            raise LoweringError(
                f"input {i} of {module.name} is {got}, it was planned for {type_}; plan again for this type"
            )
    results: list[Any] = planned_p.bind(*arrays, module=module)
    return results


planned_p = Primitive("planned")
planned_p.multiple_results = True


def _run(*arrays: Any, module: DeviceModule) -> Any:
    with jax.disable_jit(False):
        return module.function(*module.placed(arrays))


def _result_types(*avals: Any, module: DeviceModule) -> tuple[list[Any], frozenset[Any]]:
    """Result types, in JAX's explicit sharding mode with the planned sharding; and effects."""
    mesh = next((m for a in avals if (m := _explicit_mesh(a, module)) is not None), None)
    out = []
    weak = module.weak or (False,) * len(module.outputs)
    for type_, spec, is_weak in zip(module.outputs, module.specs, weak, strict=True):
        sharding = {} if mesh is None or spec is None else {"sharding": NamedSharding(mesh, spec)}
        out.append(jax.core.ShapedArray(type_.shape, numpy_dtype(type_.dtype), weak_type=is_weak, **sharding))
    return out, module.effects


def _explicit_mesh(aval: Any, module: DeviceModule) -> Any:
    mesh = getattr(getattr(aval, "sharding", None), "mesh", None)
    if mesh is None or mesh.empty or tuple(mesh.shape.items()) != module.axes:
        return None
    return mesh if mesh.are_all_axes_explicit else None


@contextlib.contextmanager
def whole_programs() -> Iterator[None]:
    """Within it, planned functions are lowered as their unplanned programs: to be planned with what is around them."""
    token = _whole_programs.set(True)
    try:
        yield
    finally:
        _whole_programs.reset(token)


_whole_programs: contextvars.ContextVar[bool] = contextvars.ContextVar("whole_programs", default=False)


def is_batched(value: Any) -> bool:
    """Whether a value is being vmapped."""
    return isinstance(value, BatchTracer)


def axes_are_named() -> bool:
    """Whether collectives over a name could be meant, of `jax.vmap` or of `jax.shard_map`."""
    return bool(get_axis_env().axis_sizes)


def _lower(context: Any, *operands: Any, module: DeviceModule) -> Any:
    """A call of the module's main function, under fresh channel ids."""
    surrounding = context.module_context
    if _whole_programs.get() and module.whole is not None:
        return _call(surrounding, module.name, _with_callbacks(module, module.whole(), surrounding), operands)
    place = surrounding.axis_context
    devices = getattr(place, "num_devices", None)
    if devices is None:
        raise LoweringError(
            f"{module.name} was planned for whole arrays and cannot be called inside shard_map; call it outside of it"
        )
    if devices != module.devices and module.devices != 1:
        raise LoweringError(
            f"{module.name} was planned for {module.devices} devices and is called in a context with {devices}; pass "
            f"arrays that lie on a mesh of {module.devices} devices, or give the surrounding jax.jit in_shardings on it"
        )
    platform = surrounding.platforms[0] if len(surrounding.platforms) == 1 else ""
    text = _with_callbacks(module, module.text(platform), surrounding)
    return _call(surrounding, module.name, _with_fresh_channels(text, surrounding), operands)


def _call(surrounding: Any, name: str, text: str, operands: Sequence[Any]) -> list[Any]:
    if _LAPACK.search(text):
        # Where JAX itself has lowered no such call in this process, the library's functions are null pointers yet.
        lapack.prepare_lapack_call("potrf", np.dtype(np.float32))
    try:
        parsed = mlir.ir.Module.parse(text, context=surrounding.context)
    except mlir.ir.MLIRError as error:
        reason = str(error).strip().splitlines()[1:2] or [str(error)]
        raise ProgramError(
            f"XLA does not take {name}: {reason[0].strip()}; an op of your own says in its `emit` how it is made of "
            "StableHLO's"
        ) from None
    main = mlir.ir.SymbolTable(parsed.operation)["main"]
    types = mlir.ir.FunctionType(main.attributes["function_type"].value).results
    symbol = mlir.merge_mlir_modules(surrounding.module, name, parsed, dst_symtab=surrounding.symbol_table)
    from jaxlib.mlir.dialects import func

    return list(func.CallOp(types, mlir.ir.FlatSymbolRefAttr.get(symbol), list(operands)).results)


_CHANNEL = re.compile(r"channel_handle<handle = (\d+)")


def _with_fresh_channels(text: str, surrounding: Any) -> str:
    """The text with its channels renumbered: two plans in one module must not share a channel."""
    fresh: dict[str, int] = {}

    def renumber(match: re.Match[str]) -> str:
        old = match[1]
        if old not in fresh:
            fresh[old] = surrounding.new_channel()
        return f"channel_handle<handle = {fresh[old]}"

    return _CHANNEL.sub(renumber, text)


_CALLBACK = re.compile(r'(call_target_name = "xla_\w*python_\w*callback".*?\bindex = )(\d+)')


def _with_callbacks(module: DeviceModule, text: str, surrounding: Any) -> str:
    """The text whose callbacks are numbered as in the surrounding module, which gets them.

    LoweringError if the module came without its callbacks, as text does.
    """
    numbers: dict[int, int] = {}

    def renumber(match: re.Match[str]) -> str:
        old = int(match[2])
        if old >= len(module.callbacks):
            raise LoweringError(
                f"{module.name} calls back into Python, and its callbacks are not at hand; call plan.to_jax() of the "
                "plan of a jax.stages.Lowered"
            )
        if old not in numbers:
            surrounding.add_host_callback(module.callbacks[old])
            numbers[old] = len(surrounding.host_callbacks) - 1
        return f"{match[1]}{numbers[old]}"

    return _CALLBACK.sub(renumber, text)


def _differentiate(primals: Sequence[Any], tangents: Sequence[Any], *, module: DeviceModule) -> Any:
    if all(isinstance(t, ad.Zero) for t in tangents):
        results = planned_p.bind(*primals, module=module)
        return results, [ad.Zero.from_primal_value(r) for r in results]
    raise TransformationError(
        f"{module.name} is a planned function: its plan has no derivative. Differentiate the function that was "
        "planned and plan the result, e.g. eggshard.jit(jax.value_and_grad(f)), or let eggshard.jit(f) plan both"
    )


def _batch(arrays: Sequence[Any], dims: Sequence[Any], *, module: DeviceModule) -> Any:
    raise TransformationError(
        f"{module.name} is a planned function and cannot be vmapped: its plan is for unbatched arrays. Apply jax.vmap "
        "inside, e.g. eggshard.jit(jax.vmap(f)), or to eggshard.jit(f), which plans the batched program"
    )


def _transpose(cotangents: Sequence[Any], *operands: Any, module: DeviceModule) -> Any:
    raise TransformationError(
        f"{module.name} is a planned function: its plan has no transpose. Apply jax.linear_transpose inside, e.g. "
        "eggshard.jit(lambda t: jax.linear_transpose(f, x)(t))"
    )


planned_p.def_impl(_run)
planned_p.def_effectful_abstract_eval(_result_types)
mlir.register_lowering(planned_p, _lower)
ad.primitive_jvps[planned_p] = _differentiate
ad.primitive_transposes[planned_p] = _transpose
batching.primitive_batchers[planned_p] = _batch
