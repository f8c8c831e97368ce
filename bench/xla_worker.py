"""XLA in a process of its own, for module texts and flags on which it may end the process."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from jax.interpreters import mlir as jax_mlir
from jaxlib.mlir import ir
from jaxlib.mlir.passmanager import PassManager

from bench.peers import compile_text
from bench.worker import serve
from eggshard.hlo.collectives import count_collectives


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """``{"text", "flags"}``: the collectives of the compiled module. ``{"propagate"}``: its text with shardings."""
    if "propagate" in request:
        with jax_mlir.make_ir_context(), ir.Location.unknown():
            module = ir.Module.parse(request["propagate"])
            PassManager.parse("builtin.module(sdy-propagation-pipeline)").run(module.operation)
            # XLA reads a module again as one before propagation, where a reshard is written as a constraint.
            return {"text": str(module).replace("sdy.reshard", "sdy.sharding_constraint")}
    start = time.perf_counter()
    compiled = compile_text(request["text"], request["flags"])
    seconds = time.perf_counter() - start
    count = count_collectives(compiled.hlo_modules()[0].to_string())
    return {"ops": [asdict(op) for op in count.ops], "devices": count.num_devices, "seconds": seconds}


if __name__ == "__main__":
    serve(answer)
