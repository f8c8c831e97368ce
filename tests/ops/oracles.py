"""Two independent meanings of StableHLO text: XLA on one CPU device, and the StableHLO reference interpreter."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
from jax.extend import backend
from jax.interpreters import mlir
from jaxlib import _jax
from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _stablehlo
from jaxlib.mlir.passmanager import PassManager

from eggshard.ops.spelling import MlirPrinter
from eggshard.program.dense import dense_text, parse_dense
from eggshard.program.program import Region

_stablehlo.register_stablehlo_passes()

#: Relative and absolute tolerance by NumPy element type; others must be equal.
TOLERANCE = {"float64": 1e-10, "complex128": 1e-10, "float32": 2e-5, "complex64": 1e-4, "float16": 2e-3,
             "bfloat16": 2e-2}


def parse(text: str) -> ir.Module:
    """The verified module of a text: MLIR infers every result type again and compares."""
    with mlir.make_ir_context():
        return ir.Module.parse(text)


def run_xla(text: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of ``@main`` compiled by XLA for one CPU device."""
    client = backend.get_backend("cpu")
    options = backend.get_compile_options(num_replicas=1, num_partitions=1)
    module = parse(text)
    with jax.enable_x64(True), module.context:
        executable = client.compile_and_load(module, _jax.DeviceList((client.devices()[0],)), options)
        outs = executable.execute_sharded([jax.device_put(a, client.devices()[0]) for a in arrays])
        return [np.asarray(shards[0]) for shards in outs.disassemble_into_single_device_arrays()]


def run_interpreter(text: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of ``@main`` by the reference interpreter; it knows no complex values at the boundary."""
    context = mlir.make_ir_context()
    _stablehlo.register_interpreter_dialect(context)
    with context:
        module = ir.Module.parse(text)
        PassManager.parse("builtin.module(func.func(chlo-legalize-to-stablehlo))").run(module.operation)
        values = [ir.DenseElementsAttr(ir.Attribute.parse(dense_text(a))) for a in arrays]
        return [parse_dense(str(out)) for out in _stablehlo.eval_module(module, values)]


def assert_close(got: np.ndarray, want: np.ndarray, label: object = "") -> None:
    """Equal types and shapes, and elements equal within the type's tolerance; NaN equals NaN."""
    assert got.shape == want.shape and got.dtype == want.dtype, (label, got.shape, got.dtype, want.shape, want.dtype)
    limit = TOLERANCE.get(str(got.dtype))
    if limit is None:
        np.testing.assert_array_equal(got, want, err_msg=str(label))
        return
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=limit, atol=limit, err_msg=str(label))


def function_text(region: Region, name: str = "main") -> str:
    """A ``func.func`` of a region: what the StableHLO interpreter and XLA run on whole tensors."""
    printer = MlirPrinter()
    inputs = [printer.fresh() for _ in region.inputs]
    listed = ", ".join(f"{n}: {region.types[v]}" for n, v in zip(inputs, region.inputs, strict=True))
    outputs = ", ".join(str(region.types[v]) for v in region.outputs)
    body = printer.region(region, inputs, "func.return")
    return "\n".join([f"func.func @{name}({listed}) -> ({outputs}) {{", *body, "}"])
