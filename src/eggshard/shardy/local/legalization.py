"""Legalization of ops that StableHLO lacks into ops that it has, as XLA does before it considers shardings."""

from __future__ import annotations

from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _stablehlo
from jaxlib.mlir.passmanager import PassManager

from eggshard.errors import ProgramError
from eggshard.shardy.module import ShardyModule
from eggshard.shardy.passes import shardy_pass


@shardy_pass("chlo-legalize-to-stablehlo", on="")
def legalize_chlo(module: ShardyModule) -> None:
    """Write CHLO's ops out in StableHLO, as jaxlib does.

    Shardy has no sharding rules for them, so that shardings do not propagate through them, and nothing reshards around
    them. Programs of JAX that have some (``square``, ``erf``, ``top_k``) begin with this.
    """
    _stablehlo.register_stablehlo_passes()
    try:
        PassManager.parse("builtin.module(func.func(chlo-legalize-to-stablehlo))").run(module.module.operation)
    except ir.MLIRError as error:
        raise ProgramError(f"CHLO's ops cannot be written in StableHLO: {error}") from None
