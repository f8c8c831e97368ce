"""The HLO modules of XLA's own tests of its SPMD partitioner: planned, beside what XLA makes of them.

A module is a raw string of a C++ file, which jaxlib brings to StableHLO. An argument without a sharding has that of
its copies, as these tests write it; else such arguments and results are replicated. Where tiles do not divide the size
of an argument or result, XLA pads it on the devices and eggshard does not, so both get the tiles that do. What
instructions say of shardings is a hint to eggshard and an order to XLA, which therefore also gets each program without.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from jax.interpreters import mlir as jax_mlir
from jaxlib import _hlo, _jax
from jaxlib.mlir import ir
from rich.table import Table

from bench import enzyme
from bench.lit.comparing import OUTCOMES, Compared, compared, totals
from bench.lit.programs import partitioned
from eggshard.errors import EggshardError
from eggshard.frontends.stablehlo.reading import read

#: The folder of XLA's repository that the tests are in.
FOLDER = "xla"
_SHARDING = "mhlo.sharding"
_RAW = re.compile(r'R"(\w*)\((.*?)\)\1"', re.DOTALL)
_TEST = re.compile(r"^\s*(?:XLA_)?TEST(?:_[FP])?\(\s*\w+,\s*(\w+)\s*\)", re.MULTILINE)
#: Bytes of all a module's tensors up to which its plan is run: many hold large contractions.
_MOST_BYTES = 2**22
#: Kinds of modules that eggshard does not take, by what its errors say: with manual subgroups, or GSPMD's form of
#: shard_map; with partial sums at the ends; with device orders, numbers of devices or ranks that no one mesh has; with
#: tokens; with custom calls of a module's functions or of tuples, and asynchronous ops; with collectives, or partition
#: ids, outside shard_map.
_OUT_OF_SCOPE = {
    "manual": r'GSPMD sharding "[^"]*manual|@SPMD(FullToShard|ShardToFull)Shape',
    "unreduced": r'GSPMD sharding "[^"]*unreduced',
    "orders": r"is not made of axes of|leaves out devices|is over \d+ devices|is not of a tensor of",
    "tokens": r'takes or makes a token|create_token|of @main: GSPMD sharding "\{\{',
    "calls": r"has type (tuple|!mhlo)|calls functions of the module|it takes a tuple",
    "collectives": r"its groups are of replicas|which are left to the compiler",
}


def modules(path: Path) -> Iterator[tuple[str, str]]:
    """Names and texts of a file's HLO modules with tiles: each is named after the test that it stands in."""
    code = path.read_text()
    seen: Counter[str] = Counter()
    for found in _RAW.finditer(code):
        if "HloModule" in found[2] and "ENTRY" in found[2] and "devices=[" in found[2]:
            tests = _TEST.findall(code, 0, found.start())
            name = f"{path.name}:{tests[-1] if tests else 'module'}"
            seen[name] += 1
            yield name + (f"#{seen[name] - 1}" if seen[name] > 1 else ""), found[2]


def stablehlo(hlo: str) -> tuple[str, str]:
    """The functions of an HLO module in StableHLO, every argument and result of ``main`` with a sharding.

    Also those without the shardings of instructions. RuntimeError or MLIRError where jaxlib cannot do it.
    """
    proto = _hlo.hlo_module_from_text(hlo).as_serialized_hlo_module_proto()
    with jax_mlir.make_ir_context(), ir.Location.unknown():
        module = ir.Module.parse(_jax.mlir.hlo_to_stablehlo(proto))
        functions = [op.operation for op in module.body.operations]
        main = next(op for op in functions if ir.StringAttr(op.attributes["sym_name"]).value == "main")
        type_ = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
        copied = [_copied(argument) for argument in main.regions[0].blocks[0].arguments]
        ends = (("arg_attrs", type_.inputs, copied), ("res_attrs", type_.results, [None] * len(type_.results)))
        for key, types, otherwise in ends:
            known = main.attributes[key] if key in main.attributes else [ir.DictAttr.get({})] * len(types)
            given = [ir.DictAttr(entry) for entry in known]
            stated = [_even(entry[_SHARDING] if _SHARDING in entry else other, end)
                      for entry, other, end in zip(given, otherwise, types, strict=True)]
            main.attributes[key] = ir.ArrayAttr.get([ir.DictAttr.get({_SHARDING: sharding}) for sharding in stated])
        hinted = "\n".join(map(str, functions))
        module.operation.walk(_without_hint)
        return hinted, "\n".join(map(str, functions))


def _copied(argument: ir.BlockArgument) -> ir.Attribute | None:
    """The sharding of an argument's copies, if it is only copied, and all copies have one sharding."""
    users = [use.owner for use in argument.uses]
    shardings = {user.attributes[_SHARDING] if _SHARDING in user.attributes else None for user in users}
    return shardings.pop() if len(shardings) == 1 and all(user.name == "mhlo.copy" for user in users) else None


def _even(stated: ir.Attribute | None, type_: ir.Type) -> ir.Attribute:
    """A sharding without the minor tiles of dimensions that their number does not divide; replicated without one."""
    text = "{replicated}" if stated is None else ir.StringAttr(stated).value
    sharding = _hlo.HloSharding.from_string(text)
    if isinstance(type_, ir.RankedTensorType) and sharding.is_tiled() and not sharding.subgroup_types():
        counts, shape = sharding.tile_assignment_dimensions(), type_.shape
        kept = [math.gcd(count, size) for count, size in zip(counts, shape, strict=False)]
        if kept != counts[: len(shape)]:
            split = [n for count, part in zip(counts, kept, strict=False) for n in (part, count // part)]
            devices = np.reshape(sharding.tile_assignment_devices(), [*split, *counts[len(shape):]])
            order = [*range(0, len(split), 2), *range(1, len(split), 2), *range(len(split), devices.ndim)]
            tiles = ",".join(map(str, [*kept, devices.size // math.prod(kept)]))
            listed = ",".join(map(str, devices.transpose(order).flat))
            text = f"{{devices=[{tiles}]{listed} last_tile_dim_replicate}}"
    return ir.StringAttr.get(text)


def _without_hint(op: ir.Operation) -> ir.WalkResult:
    if _SHARDING in op.attributes and op.name != "stablehlo.custom_call":
        del op.attributes[_SHARDING]
    return ir.WalkResult.ADVANCE


def judged(root: Path, only: str = "") -> Iterator[Compared]:
    """The modules of the test files below a folder."""
    for path in sorted(root.rglob("*_test.cc")):
        for name, hlo in modules(path):
            if only in name:
                yield judge(name, hlo)


def judge(name: str, hlo: str) -> Compared:
    """Plan one module, and partition it by XLA with and without the shardings of instructions."""
    try:
        hinted, bare = stablehlo(hlo)
    except (RuntimeError, ir.MLIRError) as error:
        return Compared(name, "unread", why=str(error).strip().partition("\n")[0])
    try:
        devices = read(hinted).mesh.size
    except EggshardError as error:
        return Compared(name, _kind(str(error)), why=str(error))
    except Exception as error:
        return Compared(name, "failed", why=f"{type(error).__name__}: {error}")
    texts = {"XLA": hinted, "XLA without hints": bare}
    results = {who: enzyme.plain(partitioned(text, devices)) for who, text in texts.items()}
    wire = {who: result.wire_bytes for who, result in results.items() if result.wire_bytes is not None}
    made = compared(name, hinted, wire, "" if wire else results["XLA"].reason, most_bytes=_MOST_BYTES)
    return replace(made, outcome=_kind(made.why)) if made.outcome == "refused" else made


def _kind(why: str) -> str:
    return next((kind for kind, pattern in _OUT_OF_SCOPE.items() if re.search(pattern, why)), "refused")


def table(found: Sequence[Compared]) -> Table:
    """How many there are of each outcome, and how they were checked, by file."""
    files: dict[str, list[Compared]] = defaultdict(list)
    for one in found:
        files[one.name.partition(":")[0]].append(one)
    return totals(
        {**files, "all": found}, "the sharded HLO modules of XLA's tests: bytes of the busiest device beside XLA's",
        "XLA gets each module with and without the shardings of its instructions, and the fewer bytes count. no peer: "
        f"XLA fails, or its bytes cannot be counted. {', '.join(_OUT_OF_SCOPE)}: what eggshard does not take. unread: "
        "jaxlib does not, or not as StableHLO",
        (*OUTCOMES, *_OUT_OF_SCOPE, "unread"),
    )
