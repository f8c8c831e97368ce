"""The reader of StableHLO modules, with Shardy's or GSPMD's shardings, into Programs.

Calls, composites and named computations are read in place; shardings keep the names of the module's mesh axes, while
the program's mesh is refined where the module uses sub-axes. The module given is never changed.
"""

from __future__ import annotations

import re
from typing import Any

from jax.interpreters import mlir as jax_mlir
from jaxlib.mlir import ir

from eggshard.errors import EggshardError, ProgramError, ShardingError
from eggshard.frontends.jaxlib_context import attributes_of
from eggshard.frontends.normalization.normal_forms import finished
from eggshard.frontends.stablehlo.module_reader import ModuleReader, only_block, short_location
from eggshard.frontends.stablehlo.op_readers import OP_READERS
from eggshard.frontends.stablehlo.region_reader import RegionReader
from eggshard.frontends.stablehlo.shardings import stated_sharding
from eggshard.program.mesh import Mesh
from eggshard.program.program import Program
from eggshard.program.sharding import Sharding, gather_cuts

_BYTECODE = b"ML\xefR"
#: How plans as JSON begin.
_PLAN = '{"eggshard plan"'


def read(source: Any) -> Program:
    """The program of an MLIR module: its text, bytecode or portable artifact, or an ``ir.Module``.

    ProgramError for a malformed module (with the parser's message and line), one nested too deeply, dynamic shapes, or
    no single entry function; ShardingError for shardings that do not fit their mesh or tensor.
    """
    try:
        return _read(source)
    except RecursionError:
        raise ProgramError("the module's regions or calls are nested too deeply to be read") from None


def _read(source: Any) -> Program:
    if not isinstance(source, (str, bytes)):
        with source.context:
            return _read_module(source, source.operation.get_asm())
    if isinstance(source, bytes) and not source.startswith(_BYTECODE):
        source = source.decode(errors="replace")
    with jax_mlir.make_ir_context() as context:
        context.allow_unregistered_dialects = True
        module = parse_module(source)
        return _read_module(module, source if isinstance(source, str) else module.operation.get_asm())


def parse_module(source: str | bytes) -> Any:
    """The module of a text, bytecode or portable artifact, in the current context.

    ProgramError or ShardingError with the parser's first complaint and its line.
    """
    try:
        if isinstance(source, bytes) and source.startswith(_BYTECODE) and b"StableHLO_v" in source[:64]:
            from jaxlib.mlir.dialects import stablehlo

            return stablehlo.deserialize_portable_artifact(ir.Context.current, source)
        return ir.Module.parse(source)
    except (ir.MLIRError, ValueError) as error:
        raise _refusal(error, source) from None


def _refusal(error: Exception, source: str | bytes) -> ProgramError | ShardingError:
    """The parser's or verifier's first complaint, with the line it points at; about shardings, a ShardingError."""
    diagnostics = getattr(error, "error_diagnostics", None)
    message = diagnostics[0].message.strip() if diagnostics else str(error)
    place = re.search(r"(\d+):\d+\)?$", str(diagnostics[0].location)) if diagnostics else None
    lines = source.splitlines() if isinstance(source, str) else []
    if place and 0 < int(place[1]) <= len(lines):
        message += f"\n  line {place[1]}: {lines[int(place[1]) - 1].strip()[:200]}"
    if re.search(r"\b(sharding|axis|axes|sub-axis|mesh)\b|Sdy_", message.partition("\n")[0]):
        return ShardingError(f"malformed sharding: {message}")
    if isinstance(source, str) and source.lstrip().startswith(_PLAN):
        return ProgramError("this is a plan as JSON and no program; Plan.from_json reads it")
    return ProgramError(f"malformed MLIR: {message}")


def _read_module(module: Any, text: str) -> Program:
    reader = ModuleReader(module)
    function = _entry(reader)
    name = ir.StringAttr(function.attributes["sym_name"]).value
    attributes = function.attributes
    arguments, results = (_dictionaries(attributes, key) for key in ("arg_attrs", "res_attrs"))
    types = ir.FunctionType(ir.TypeAttr(attributes["function_type"]).value)
    for given in (*arguments, *results):
        reader.meshes.use_gspmd_devices(given.get("mhlo.sharding", ""))
    block = only_block(function, name)
    body = RegionReader(reader, OP_READERS)
    body.add_inputs(block.arguments)
    outputs = body.read(block)
    region = finished(body.builder.build(outputs))

    def stated(dictionaries: list[dict[str, str]], ids: tuple[int, ...], what: str) -> tuple[Sharding | None, ...]:
        out = []
        for i, value in enumerate(ids):
            given, where = dictionaries[i] if i < len(dictionaries) else {}, f"{what} {i} of @{name}"
            try:
                out.append(stated_sharding(given, region.types[value].rank, reader.meshes))
            except EggshardError as error:
                raise type(error)(f"{where}: {error}") from None
            if out[-1]:
                reader.stated.append((out[-1], region.types[value], where))
        return tuple(out)

    input_shardings = stated(arguments, region.inputs, "argument")
    output_shardings = stated(results, region.outputs, "result")
    mesh = reader.meshes.mesh or Mesh({})
    seen = reader.stated
    for sharding, type_, where in dict.fromkeys(seen):
        sharding.validate(mesh, type_, where)

    def at_ends(shardings: tuple[Sharding | None, ...], ids: tuple[int, ...]) -> tuple[Sharding | None, ...]:
        """What XLA makes of the shardings of arguments and results: these are never padded."""
        return tuple(s and s.evenly(region.types[v].shape, mesh) for s, v in zip(shardings, ids, strict=True))

    input_shardings, output_shardings = (
        at_ends(input_shardings, region.inputs), at_ends(output_shardings, region.outputs))
    if mesh.size > 1 or mesh.axes:
        stated_anywhere = (*(s for s, _, _ in seen), *input_shardings, *output_shardings)
        mesh = mesh.refined(gather_cuts(stated_anywhere, mesh))
    elif any(s.device for s, _, _ in seen):
        raise ShardingError("the module places tensors on single devices and has no mesh; define one with sdy.mesh")
    return Program(
        mesh=mesh,
        region=region,
        input_shardings=input_shardings,
        output_shardings=output_shardings,
        name=_program_name(module, name),
        input_names=tuple(_input_name(a, arguments, i) for i, a in enumerate(block.arguments)),
        output_names=tuple(
            results[i].get("jax.result_info", f'"result{i}"')[1:-1] if i < len(results) else f"result{i}"
            for i in range(len(types.results))
        ),
        text=text,
    )


def _entry(reader: ModuleReader) -> Any:
    """The function to read: ``main``, or the only public one."""
    if "main" in reader.functions:
        return reader.functions["main"]
    public = [f for f in reader.functions.values() if '"private"' not in str(attributes_of(f).get("sym_visibility"))]
    if len(public) == 1:
        return public[0]
    names = ", ".join(f"@{name}" for name in reader.functions) or "none"
    raise ProgramError(
        f"the module has no function @main and {len(public)} public functions (functions: {names}); "
        "name the entry @main, or make it the only public one"
    )


def _program_name(module: Any, entry: str) -> str:
    """The entry's name; where that is ``main``, the module's if it has one: JAX writes a function f as ``jit_f``."""
    attributes = module.operation.attributes
    if entry != "main" or "sym_name" not in attributes:
        return entry
    return ir.StringAttr(attributes["sym_name"]).value.removeprefix("jit_") or entry


def _dictionaries(attributes: Any, key: str) -> list[dict[str, str]]:
    if key not in attributes:
        return []
    return [
        {named.name: str(named.attr) for named in ir.DictAttr(entry)} for entry in ir.ArrayAttr(attributes[key])
    ]


def _input_name(argument: Any, dictionaries: list[dict[str, str]], i: int) -> str:
    """The name that JAX gives an argument (``jax.arg_info`` or its location), else ``arg<i>``."""
    given = dictionaries[i].get("jax.arg_info", "") if i < len(dictionaries) else ""
    return given.strip('"') or short_location(argument.location) or f"arg{i}"
