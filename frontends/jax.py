"""Programs from JAX: what `jax.jit(f).lower(...)` returns, or a function and example arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eggshard.errors import ProgramError
from eggshard.program.program import Program


def is_lowered(source: Any) -> bool:
    """Whether ``source`` is a ``jax.stages.Lowered``, told without importing JAX."""
    return callable(getattr(source, "compiler_ir", None)) and callable(getattr(source, "as_text", None))


def is_exported(source: Any) -> bool:
    """Whether ``source`` is a ``jax.export.Exported``, told without importing JAX."""
    return callable(getattr(source, "mlir_module", None)) and callable(getattr(source, "serialize", None))


def from_lowered(lowered: Any) -> Program:
    """The program of a ``jax.stages.Lowered``. Donation of arguments is not part of a program.

    ProgramError when it was lowered for anything but StableHLO.
    """
    from eggshard.frontends.stablehlo import read

    module = lowered.compiler_ir("stablehlo")
    if module is None:
        raise ProgramError("the lowered computation has no StableHLO; lower it with jax.jit(f).lower(...)")
    return read(module)


def lower(function: Callable[..., Any], *arguments: Any, **options: Any) -> Program:
    """The program that JAX traces from a function; ``options`` (``in_shardings``, ...) are those of `jax.jit`.

    ``arguments`` are arrays or ``jax.ShapeDtypeStruct``; a function that is already jitted takes no options.
    """
    if hasattr(function, "lower") and not options:
        return from_lowered(function.lower(*arguments))
    import jax

    return from_lowered(jax.jit(function, **options).lower(*arguments))
