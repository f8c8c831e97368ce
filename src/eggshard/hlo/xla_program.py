"""XLA's own program: a module with its author's shardings, compiled unchanged by XLA's partitioner.

This file is the only one that compiles past `jax.jit`, by the client's interface, which promises less than JAX's own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import backend
from jax.interpreters import mlir as jax_mlir
from jaxlib import _jax
from jaxlib.mlir import ir

from eggshard.errors import LoweringError
from eggshard.ops.module_text import program_text
from eggshard.program.program import Program
from eggshard.program.sharding import whole_mesh


def compile_by_xla(
    program: Program, callbacks: Sequence[Any] = (), flags: dict[str, str] | None = None
) -> tuple[Any, float]:
    """XLA's executable of a program for the first devices, and the seconds that compiling it took.

    The text is the one that the program was read from, or the program's own. Results without a stated sharding lie
    where XLA's propagation puts them, inputs without one on every device. ``callbacks`` are the Python functions that
    its custom calls number, ``flags`` XLA's by name. LoweringError where devices are missing or XLA refuses the
    program.
    """
    count = whole_mesh(program.mesh).size
    devices = tuple(jax.devices()[:count])
    if len(devices) < count:
        raise LoweringError(
            f"{program.name} is for {count} devices, mesh {whole_mesh(program.mesh).axes}; XLA can compile it for the "
            f"{len(devices)} that are here only. On a CPU, XLA_FLAGS=--xla_force_host_platform_device_count={count} "
            "makes as many"
        )
    text = program.text or program_text(program)
    options = backend.get_compile_options(
        num_replicas=1, num_partitions=count,
        device_assignment=np.array([d.id for d in devices]).reshape(1, count), env_options_overrides=flags,
    )
    build = options.executable_build_options
    build.use_spmd_partitioning = True
    build.use_shardy_partitioner = "sdy." in text
    build.allow_spmd_sharding_propagation_to_output = [s is None for s in program.output_shardings]
    began = time.perf_counter()
    try:
        with jax_mlir.make_ir_context():
            module = _with_main(ir.Module.parse(text), program.name)
            began = time.perf_counter()
            executable = backend.get_backend().compile_and_load(
                module, _jax.DeviceList(devices), options, list(callbacks)
            )
    except (ir.MLIRError, jax.errors.JaxRuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise LoweringError(f"XLA does not compile {program.name} as its author wrote it: {reason}") from None
    return executable, time.perf_counter() - began


def _with_main(module: ir.Module, name: str) -> ir.Module:
    """A module whose entry is called ``main``, as XLA wants it; its author may have called it otherwise."""
    named = {ir.StringAttr(f.attributes["sym_name"]).value: f for f in module.body.operations
             if f.operation.name == "func.func"}
    if "main" not in named and name in named:
        named[name].attributes["sym_name"] = ir.StringAttr.get("main", module.context)
    return module
