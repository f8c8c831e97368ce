"""Front ends for what JAX lowers and exports, recognised without importing JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from eggshard.errors import ProgramError
from eggshard.frontends.protocol import Frontend, is_of_class
from eggshard.program.program import Program

if TYPE_CHECKING:
    from eggshard.frontends.jax.calling_convention import JaxCallingConvention


class LoweredFunction(Frontend):
    """A ``jax.stages.Lowered``. Donation of arguments is no part of its Program."""

    name = "what jax.jit(f).lower(...) returns"

    def accepts(self, source: Any) -> bool:
        return is_of_class(source, "jax", "Lowered")

    def read(self, source: Any) -> Program:
        """See `Frontend.read`; ProgramError as well when it was lowered for anything but StableHLO."""
        from eggshard.frontends.stablehlo.reading import read

        module = source.compiler_ir("stablehlo")
        if module is None:
            raise ProgramError("the lowered computation has no StableHLO; lower it with jax.jit(f).lower(...)")
        return read(module)

    def calling_convention(self, source: Any) -> JaxCallingConvention:
        from eggshard.frontends.jax.calling_convention import JaxCallingConvention

        return JaxCallingConvention.of(source)

    def devices(self, source: Any) -> Sequence[Any]:
        return tuple(getattr(source._lowering, "_device_list", None) or ())


class ExportedFunction(Frontend):
    """A ``jax.export.Exported``, read as its module."""

    name = "what jax.export.export(...)(...) returns"

    def accepts(self, source: Any) -> bool:
        return is_of_class(source, "jax", "Exported")

    def read(self, source: Any) -> Program:
        from eggshard.frontends.stablehlo.reading import read

        return read(source.mlir_module())
