"""Reader of what XLA's partitioner made: the program that every device runs, as one on whole arrays.

jaxlib converts compiled HLO to StableHLO, whose reader reads it. Its parameters are shards, laid out as the module
says; so the program is one manual computation over all devices, as code under ``jax.shard_map`` is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax.interpreters import mlir as jax_mlir
from jaxlib import _hlo, _jax
from jaxlib.mlir import ir

from eggshard.errors import ProgramError
from eggshard.frontends.normalization.divergence import mark_divergence
from eggshard.frontends.normalization.normal_forms import finished
from eggshard.frontends.stablehlo.module_reader import ModuleReader, only_block
from eggshard.frontends.stablehlo.op_readers import OP_READERS
from eggshard.frontends.stablehlo.reading import parse_module
from eggshard.frontends.stablehlo.region_reader import RegionReader
from eggshard.frontends.stablehlo.shardings import GSPMD_AXIS, gspmd_sharding
from eggshard.hlo.comparisons import read_compare
from eggshard.hlo.replica_groups import parse_replica_groups
from eggshard.ops.region_builder import RegionBuilder
from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.program import Program, Region
from eggshard.program.sharding import Sharding, gather_cuts
from eggshard.program.types import TensorType, mlir_dtype

_OP_READERS = OP_READERS._replace(named={**OP_READERS.named, "stablehlo.compare": read_compare})
_PARTITIONS = re.compile(r"\bnum_partitions=(\d+)")
_REPLICAS = re.compile(r"\breplica_count=(\d+)")
_GROUPS = re.compile(r"(?<=replica_groups=)(?:mesh|@)[^{}]*\{[^{}]*\}")


def compiled_program(compiled: Any) -> Program:
    """The program of a ``jax.stages.Compiled``; see `partitioned_program`."""
    kept = compiled._executable._kept_var_idx
    dropped = {
        i: TensorType(tuple(aval.shape), mlir_dtype(aval.dtype))
        for i, aval in enumerate(jax.tree.leaves(compiled.in_avals)) if i not in kept
    }
    return partitioned_program(compiled.runtime_executable(), dropped)


def partitioned_program(executable: Any, dropped: Mapping[int, TensorType] | None = None) -> Program:
    """The program of an XLA executable. dropped: arguments that it does not take, by their position among all.

    ProgramError for what cannot be read: several replicas, unknown shardings, ops that are none of StableHLO.
    """
    (module,) = executable.hlo_modules()
    options = _hlo.HloPrintOptions()
    options.print_large_constants, options.print_metadata = True, False
    text = module.to_string(options)
    header = text.partition("\n")[0]
    if (replicas := _REPLICAS.search(header)) and int(replicas[1]) > 1:
        raise ProgramError("compiled HLO: several replicas; one program on partitions is what can be read")
    partitions = int(found[1]) if (found := _PARTITIONS.search(header)) else 1
    region = _body(text)
    mesh = Mesh({GSPMD_AXIS: partitions})
    out = module.spmd_output_sharding
    results = [] if out is None else out.tuple_shardings if out.type == _hlo.OpSharding.Type.TUPLE else [out]
    ends = (region.inputs, module.spmd_parameters_shardings), (region.outputs, results)
    (inputs, outputs) = (
        _shardings(shardings, [region.types[v] for v in values], mesh) for values, shardings in ends
    )
    wholes = [
        tuple(_whole(region.types[v], s, mesh) for v, s in zip(values, shardings, strict=True))
        for values, shardings in ((region.inputs, inputs), (region.outputs, outputs))
    ]
    attributes = Attributes(in_shardings=inputs, out_shardings=outputs, manual_axes=(GSPMD_AXIS,),
                            result_types=wholes[1], mesh=mesh)
    builder = RegionBuilder()
    dropped, taken, values = dropped or {}, iter(wholes[0]), []
    stated: list[Sharding | None] = list(inputs)
    for i in range(len(wholes[0]) + len(dropped)):
        if i in dropped:
            builder.input(dropped[i])
            stated.insert(i, None)
        else:
            values.append(builder.input(next(taken)))
    made = builder.add("manual_computation", values, attributes, (mark_divergence(attributes, region),))
    return Program(mesh.refined(gather_cuts((*inputs, *outputs), mesh)), builder.build(made), tuple(stated), outputs,
                   name=module.name.removeprefix("jit_"))


def _body(text: str) -> Region:
    """What each device computes. Groups of devices are listed, as StableHLO's reader takes them."""
    listed = _GROUPS.sub(lambda m: _spelled(parse_replica_groups(m[0], 0)), text)
    try:
        code = _hlo.hlo_module_from_text(listed).as_serialized_hlo_module_proto()
        with jax_mlir.make_ir_context() as context:
            context.allow_unregistered_dialects = True
            module = parse_module(bytes(_jax.mlir.hlo_to_stablehlo(code)))
            reader = ModuleReader(module)
            block = only_block(reader.functions["main"], "main")
            body = RegionReader(reader, _OP_READERS)
            body.add_inputs(block.arguments)
            return finished(body.builder.build(body.read(block)))
    except (RuntimeError, ValueError, ir.MLIRError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ProgramError(f"compiled HLO: it is not to be had as StableHLO: {reason}") from None


def _spelled(groups: Sequence[Sequence[int]]) -> str:
    return "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in groups) + "}"


def _shardings(stated: Sequence[Any] | None, types: Sequence[TensorType], mesh: Mesh) -> tuple[Sharding, ...]:
    """Where parameters or outputs lie; every device has all of them where nothing is stated."""
    texts = [str(_hlo.HloSharding.from_proto(s)) for s in stated or ()] or ["{replicated}"] * len(types)
    if len(texts) != len(types):
        raise ProgramError(f"compiled HLO: {len(texts)} shardings for {len(types)} parameters or results")
    return tuple(gspmd_sharding(text, t.rank, mesh) for text, t in zip(texts, types, strict=True))


def _whole(type_: TensorType, sharding: Sharding, mesh: Mesh) -> TensorType:
    counts = (math.prod(axis.devices(mesh.axes) for axis in dim.axes) for dim in sharding.dims)
    return type_.with_shape(tuple(n * count for n, count in zip(type_.shape, counts, strict=True)))
