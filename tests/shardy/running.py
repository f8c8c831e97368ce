"""Localised modules run: on simulated devices, on the StableHLO interpreter in lock step, and on XLA's devices."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import numpy as np
from jax.interpreters import mlir as jax_mlir
from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _stablehlo
from jaxlib.mlir.passmanager import PassManager
from tests.ops.oracles import assert_close

from eggshard import shardy
from eggshard.engines.jax.verification import random_array
from eggshard.frontends.stablehlo.reading import read
from eggshard.ops.evaluate import evaluate_region
from eggshard.program.dense import dense_text, parse_dense
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement
from eggshard.program.program import Program
from eggshard.shardy.local.collectives import CollectiveOptions
from eggshard.shardy.local.control import HANDLERS
from eggshard.shardy.local.conversion import Conversion
from eggshard.shardy.local.layouts import Layout, refined
from eggshard.shardy.local.ordinary import convert_ordinary
from eggshard.shardy.local.wrapping import whole_program
from eggshard.shardy.module import parsed
from eggshard.simulate.simulator import gather_from_devices, run, scatter_to_devices
from eggshard.spmd.manual import manual_program

_stablehlo.register_stablehlo_passes()


class Boundary:
    """Where arguments and results of ``@main`` lie, as an annotated module says."""

    def __init__(self, text: str) -> None:
        with parsed(text) as module:
            arguments, results = Conversion(module, CollectiveOptions(), HANDLERS, convert_ordinary).signatures["main"]
            meshes = [m for m in module.meshes.values() if isinstance(m, Mesh) and m.axes]
        self.arguments, self.results = arguments, results
        self.mesh = meshes[0] if meshes else Mesh({})
        self.devices = self.mesh.size

    def scatter(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Per argument ``[devices, *local shape]``."""
        return [
            scatter_to_devices(mesh, array, placement)
            for array, (mesh, placement) in zip(arrays, map(self._placed, self.arguments), strict=True)
        ]

    def gather(self, shards: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The whole results; VerificationError where devices disagree."""
        return [
            gather_from_devices(mesh, np.asarray(s), layout.type.shape, placement)
            for s, layout, (mesh, placement) in zip(
                shards, self.results, map(self._placed, self.results), strict=True)
        ]

    def _placed(self, layout: Layout) -> tuple[Mesh, Placement]:
        mesh = self.mesh if layout.plain else refined(layout.mesh, *layout.dims, layout.unreduced)
        return mesh, layout.placement(mesh)


def run_simulated(local: str, boundary: Boundary, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of a localised module on simulated devices."""
    region = read(shardy.transform(local, "drop-sharding-and-mesh")).region
    plan = manual_program(boundary.mesh, region, Mesh({}))
    return boundary.gather(run(plan, boundary.scatter(arrays)))


def interpreter_runs(boundary: Boundary) -> bool:
    """Whether the interpreter has a thread for every device; with fewer, devices that wait for others never go on."""
    return len(os.sched_getaffinity(0)) >= boundary.devices


def run_on_interpreter(local: str, boundary: Boundary, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of a localised module by the StableHLO interpreter, all devices in lock step."""
    context = jax_mlir.make_ir_context()
    _stablehlo.register_interpreter_dialect(context)
    text = shardy.transform(local, "drop-sharding-and-mesh")
    with context:
        module = ir.Module.parse(text)
        function = next(f for f in module.body.operations if ir.StringAttr(f.attributes["sym_name"]).value == "main")
        type_ = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
        ins, outs = [list(map(str, side)) * boundary.devices for side in (type_.inputs, type_.results)]
        listed = ", ".join(f"%a{i}: {t}" for i, t in enumerate(ins))
        names, results = ", ".join(f"%a{i}" for i in range(len(ins))), ", ".join(f"%r#{i}" for i in range(len(outs)))
        programs = ", ".join(["@on_device"] * boundary.devices)
        caller = f"""func.func @main({listed}) -> ({", ".join(outs)}) {{
            %r:{len(outs)} = "interpreter.run_parallel"({names}) {{programs = [[{programs}]]}}
              : ({", ".join(ins)}) -> ({", ".join(outs)})
            return {results} : {", ".join(outs)} }}"""
        function.attributes["sym_name"] = ir.StringAttr.get("on_device")
        body = str(module.operation.get_asm()).rstrip().removesuffix("}")
        whole = ir.Module.parse(f"{body}{caller}\n}}")
        PassManager.parse("builtin.module(func.func(chlo-legalize-to-stablehlo))").run(whole.operation)
        shards = boundary.scatter(arrays)
        values = [
            ir.DenseElementsAttr(ir.Attribute.parse(dense_text(np.ascontiguousarray(s[device]))))
            for device in range(boundary.devices) for s in shards
        ]
        flat = [parse_dense(str(out)) for out in _stablehlo.eval_module(whole, values)]
    count = len(boundary.results)
    return boundary.gather([np.stack(flat[i::count]) for i in range(count)])


def run_on_xla(local: str, boundary: Boundary, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of a localised module compiled by XLA, on CPU devices."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec
    from tests.emit.devices import compile_text

    executable = compile_text(whole_program(local), boundary.devices)
    devices = jax.devices()[: boundary.devices]
    flat = jax.sharding.Mesh(np.array(devices), ("all",))
    given = []
    for shards in boundary.scatter(arrays):
        spec, shape = (PartitionSpec("all"), (len(devices) * shards.shape[1], *shards.shape[2:])) if shards.ndim > 1 \
            else (PartitionSpec(), ())
        with jax.enable_x64(True):
            parts = [jax.device_put(s, device) for s, device in zip(shards, devices, strict=True)]
        given.append(jax.make_array_from_single_device_arrays(shape, NamedSharding(flat, spec), parts))
    results = executable.execute_sharded(given).disassemble_into_single_device_arrays()
    return boundary.gather([np.stack([np.asarray(a) for a in r]) for r in results])


def meaning_of(text: str) -> Program:
    """What a module computes, in whatever order its meshes number devices: meshes of the same axes are one."""
    text = re.sub(r", device_ids\s*=\s*\[[^\]]*\]", "", text)
    first: dict[str, str] = {}
    for line, name, axes in re.findall(r"(sdy\.mesh @([\w.]+) = (?:#sdy\.mesh)?(<.*>))", text):
        if first.setdefault(axes, name) != name:
            text = re.sub(rf"@{name}\b", f"@{first[axes]}", text.replace(line, "", 1))
    return read(text)


def inputs_of(program: Program, seed: int, nans: bool = True) -> list[np.ndarray]:
    """Random arrays for a program, with a NaN in those of floats."""
    rng = np.random.default_rng(seed)
    arrays = [random_array(type_, rng) for type_ in program.input_types]
    for array in arrays:
        if nans and array.dtype.kind == "f" and array.size > 1:
            array.reshape(-1)[int(rng.integers(array.size))] = np.nan
    return arrays


def assert_runs_equal(
    text: str, local: str, original: str = "", seed: int = 0, xla: bool = False, nans: Sequence[bool] = (False, True)
) -> None:
    """A localised module computes what the module does of which it was made.

    ``text`` says where arguments and results lie, ``original`` (if another) what is computed. nans: whether inputs are
    random, or random with NaN among them. xla: on XLA's devices too.
    """
    program = meaning_of(original or text)
    boundary = Boundary(text)
    for nan in nans:
        arrays = inputs_of(program, seed, nan)
        want = evaluate_region(program.region, arrays)
        engines = [run_simulated, *([run_on_interpreter] if interpreter_runs(boundary) else []),
                *([run_on_xla] if xla and nan == nans[-1] else [])]
        for engine in engines:
            for i, (a, b) in enumerate(zip(engine(local, boundary, arrays), want, strict=True)):
                assert_close(a, b, f"result {i} by {engine.__name__}, seed {seed}, NaN {nan}\n{text}\n{local}")
