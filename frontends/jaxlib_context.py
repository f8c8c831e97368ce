"""An MLIR context as JAX makes it, built from jaxlib alone because importing JAX takes three times as long."""

from __future__ import annotations

from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, mhlo, mpmd, sdy, stablehlo

#: Registering dialects registers Shardy's passes, too.
_DIALECTS = ir.DialectRegistry()
_jax_mlir_ext.register_dialects(_DIALECTS)
_THREADS = ir.ThreadPool()


class _Context(ir.Context):  # type: ignore[misc]
    def __init__(self) -> None:
        super(ir.Context, self).__init__()  # not that of `ir.Context`, which loads every dialect there is


def attributes_of(operation: Any) -> dict[str, Any]:
    """The attributes of an MLIR op by name, which jaxlib 0.8 has no items of."""
    given = operation.attributes
    return dict(given.items()) if hasattr(given, "items") else {each.name: each.attr for each in given}


def make_context() -> Any:
    """A new context with JAX's dialects."""
    context = _Context()
    context.append_dialect_registry(_DIALECTS)
    context.load_all_available_dialects()
    context.set_thread_pool(_THREADS)
    sdy.register_dialect(context)
    mpmd.register_dialect(context)
    mhlo.register_mhlo_dialect(context)
    chlo.register_dialect(context)
    stablehlo.register_dialect(context)
    return context
