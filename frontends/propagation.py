"""Shardy's propagation: the sharding of every value of a program, as XLA would choose it before communication.

The passes may abort their process on some inputs, so they run in the worker. The worker answers with plain text, and
only it needs MLIR.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from eggshard.errors import EggshardError, EggshardWarning, ShardingError
from eggshard.frontends.jaxlib_passes import after_passes, worker
from eggshard.ops.module_text import PRINTED_REGIONS, TAG, program_text
from eggshard.program.codec import split_top_level
from eggshard.program.mesh import Mesh
from eggshard.program.program import Op, Program, Region
from eggshard.program.sharding import DimSharding, Sharding, atoms, gather_cuts, whole_mesh
from eggshard.program.sharding_text import read_sharding

PIPELINE = "sdy-propagation-pipeline"
#: Seconds that propagation may take.
SECONDS = 60.0

#: Texts of shardings found: per input, per output, per tagged op and result, per tagged manual computation and operand;
#: None where none was found.
Found = tuple[list[str | None], list[str | None], dict[int, list[str | None]], dict[int, list[str | None]]]


@dataclass(frozen=True)
class Propagated:
    """The shardings of a region's values, closed, None where nothing was found; the same of the regions inside it.

    regions: per number of an op (a loop, a branch, a manual computation) those of its regions. interfaces: per number
    of a manual computation what it asks of its operands, and what its results have.
    """

    values: list[Sharding | None]
    regions: dict[int, list[Propagated]] = field(default_factory=dict)
    interfaces: dict[int, tuple[list[Sharding], list[Sharding]]] = field(default_factory=dict)


def propagate(text: str) -> str:
    """The module's text after Shardy's propagation, locations included. May abort the process: run it in the worker.

    ProgramError for malformed text and for a pass that fails.
    """
    found: str = after_passes(text, PIPELINE, lambda module: module.operation.get_asm(enable_debug_info=True))
    return found


def propagate_tagged(text: str) -> Found:
    """The shardings that propagation finds for a module whose ops are tagged by location; runs in the worker."""
    found: Found = after_passes(text, PIPELINE, _found)
    return found


def propagated_shardings(program: Program, seconds: float = SECONDS) -> list[Sharding | None]:
    """The closed sharding of each value of the program's region; None where propagation found nothing.

    Sub-axes that the program's mesh is not refined for are dropped, with the minor axes behind them. Without JAX, or
    when propagation fails (EggshardWarning), these are the stated shardings.
    """
    return propagated(program, seconds).values


def propagated(program: Program, seconds: float = SECONDS) -> Propagated:
    """The same with the shardings inside loops, branches and manual computations."""
    region = program.region
    inputs, _, ops, operands = _call(program, seconds) or ([], [], {}, {})
    stated: list[Sharding | None] = [None] * len(region.types)
    ends = ((region.outputs, program.output_shardings), (region.inputs, program.input_shardings))
    for v, sharding in (pair for values, shardings in ends for pair in zip(values, shardings, strict=True)):
        stated[v] = sharding.closed() if sharding else None
    for v, text in zip(region.inputs, inputs, strict=False):
        stated[v] = _read(text) or stated[v]
    return _Inside(program.mesh, ops, operands).region(region, stated)


def propagate_program(program: Program, seconds: float = SECONDS) -> Program:
    """The program with every op, input and output sharded as propagation finds, on a mesh refined for that."""
    found = _call(program, seconds)
    if found is None:
        return program
    inputs, outputs, ops, _ = found
    counter = count()

    def rebuilt(region: Region) -> Region:
        return replace(region, ops=tuple(map(sharded, region.ops)))

    def sharded(op: Op) -> Op:
        own = _shardings(ops.get(next(counter)), len(op.results))
        old = op.shardings or (None,) * len(op.results)
        regions = tuple(map(rebuilt, op.regions)) if op.name in PRINTED_REGIONS else op.regions
        shardings = tuple(new or stated for new, stated in zip(own, old, strict=True))
        return replace(op, shardings=shardings if any(shardings) else (), regions=regions)

    region = rebuilt(program.region)
    ins = tuple(_read(t) or s for t, s in zip(inputs, program.input_shardings, strict=True))
    outs = tuple(_read(t) or s for t, s in zip(outputs, program.output_shardings, strict=True))
    whole = whole_mesh(program.mesh)
    cuts = gather_cuts([*ins, *outs, *_stated(region), *_stated(program.region)], whole)
    return replace(
        program, mesh=whole.refined(cuts), region=region, input_shardings=ins, output_shardings=outs, text=None
    )


def warm() -> None:
    """Start the process that propagates, ahead of its first call."""
    if importlib.util.find_spec("jaxlib") is not None:
        worker().warm()


def _call(program: Program, seconds: float) -> Found | None:
    """What propagation finds; None, with a warning, when it fails, and when there is nothing to find."""
    if not program.mesh.axes or importlib.util.find_spec("jaxlib") is None:
        return None
    warm()  # it starts while the text is written
    try:
        found: Found = worker().call(f"{__name__}:propagate_tagged", program_text(program, tag=True), seconds=seconds)
    except EggshardError as error:
        warnings.warn(f"Shardy's propagation failed, so only stated shardings are used: {error}", EggshardWarning,
                      stacklevel=3)
        return None
    return found


class _Inside:
    """Gives texts, which are numbered in the order of `walk`, back to the values of a program's regions."""

    def __init__(self, mesh: Mesh, ops: dict[int, list[str | None]], operands: dict[int, list[str | None]]):
        self.mesh, self.ops, self.operands = mesh, ops, operands
        self.numbers = count()

    def region(self, region: Region, known: list[Sharding | None]) -> Propagated:
        """A region whose inputs, and perhaps further values, are known to be sharded."""
        out = [None if s is None else _on_mesh(s, self.mesh) for s in known]
        found = Propagated(out)
        for i, op in enumerate(region.ops):
            number = next(self.numbers)
            stated: tuple[Sharding | None, ...] = op.shardings or (None,) * len(op.results)
            if op.name == "sharding_constraint":
                stated = (op.attributes["sharding"],)
            elif op.name == "manual_computation":
                stated = op.attributes["out_shardings"]
            own = self._on_mesh(self.ops.get(number), len(op.results))
            for v, new, old in zip(op.results, own, stated, strict=True):
                out[v] = new or (self._closed(old) if old else out[v])
            if op.name in PRINTED_REGIONS:
                given: list[Sharding | None]
                match op.name:
                    case "manual_computation":
                        asked = self._on_mesh(self.operands.get(number), len(op.operands))
                        ends = ((asked, "in_shardings"), ([out[v] for v in op.results], "out_shardings"))
                        ins, outs = (
                            [new or self._closed(old) for new, old in zip(end, op.attributes[key], strict=True)]
                            for end, key in ends
                        )
                        found.interfaces[i] = ins, outs
                        given = [s.without(op.attributes["manual_axes"]) for s in ins]
                    case "while":
                        given = [out[v] for v in op.results]
                    case _:
                        given = [out[v] for v in op.operands[1:]]
                found.regions[i] = [
                    self.region(r, [*given, *[None] * (len(r.types) - len(given))]) for r in op.regions
                ]
        return found

    def _closed(self, sharding: Sharding) -> Sharding:
        return _on_mesh(sharding.closed(), self.mesh)

    def _on_mesh(self, texts: list[str | None] | None, size: int) -> list[Sharding | None]:
        return [None if s is None else _on_mesh(s, self.mesh) for s in _shardings(texts, size)]


def _stated(region: Region) -> Iterator[Sharding | None]:
    for op in region.ops:
        yield from op.shardings
        if op.name == "sharding_constraint":
            yield op.attributes["sharding"]
        if op.name == "manual_computation":
            yield from (*op.attributes["in_shardings"], *op.attributes["out_shardings"])
        for inner in op.regions:
            yield from _stated(inner)


def _shardings(texts: list[str | None] | None, count: int) -> list[Sharding | None]:
    if texts is None or len(texts) != count:
        return [None] * count
    return [_read(text) for text in texts]


def _read(text: str | None) -> Sharding | None:
    """The closed sharding of a text; None for a scalar's, which says nothing."""
    sharding = None if text is None else read_sharding(text)[1].closed()
    return sharding if sharding and sharding.dims else None


def _on_mesh(sharding: Sharding, mesh: Mesh) -> Sharding:
    """The sharding whose dimensions end before the first axis that cuts an axis of the mesh."""

    def kept(dim: DimSharding) -> DimSharding:
        for i, axis in enumerate(dim.axes):
            try:
                atoms([axis], mesh)
            except ShardingError:
                return DimSharding(dim.axes[:i])
        return dim

    return replace(sharding, dims=tuple(map(kept, sharding.dims)), replicated=())


def _found(module: Any) -> Found:
    from jaxlib.mlir import ir

    inputs: list[str | None] = []
    outputs: list[str | None] = []
    ops: dict[int, list[str | None]] = {}
    operands: dict[int, list[str | None]] = {}

    def per_value(attribute: Any) -> list[str | None]:
        text = str(attribute)
        return list(split_top_level(text[text.index("[") + 1 : text.rindex("]")]))

    def visit(op: Any) -> Any:
        if op.name == "func.func":
            type_ = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
            inputs.extend(_dictionaries(op, "arg_attrs", len(type_.inputs)))
            outputs.extend(_dictionaries(op, "res_attrs", len(type_.results)))
            return ir.WalkResult.ADVANCE
        location = str(op.location)
        start = location.find(f'"{TAG}')
        if start >= 0:
            start += len(TAG) + 1
            number = int(location[start : location.index('"', start)])
            if "in_shardings" in op.attributes:
                operands[number] = per_value(op.attributes["in_shardings"])
            if "sdy.sharding" in op.attributes:
                ops[number] = per_value(op.attributes["sdy.sharding"])
            elif "out_shardings" in op.attributes:
                ops[number] = per_value(op.attributes["out_shardings"])
            elif "sharding" in op.attributes:
                ops[number] = [str(op.attributes["sharding"])]
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return inputs, outputs, ops, operands


def _dictionaries(function: Any, key: str, count: int) -> list[str | None]:
    from jaxlib.mlir import ir

    if key not in function.attributes:
        return [None] * count
    entries = [ir.DictAttr(entry) for entry in ir.ArrayAttr(function.attributes[key])]
    return [str(entry["sdy.sharding"]) if "sdy.sharding" in entry else None for entry in entries]
