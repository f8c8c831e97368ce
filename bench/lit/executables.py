"""Shardy's executable tests: a program on shards beside the whole one, run on simulated devices.

A file has two parts: functions to bring to shards, and a ``main`` that runs them on all devices at once and says which
values are to be equal. What ``main`` itself computes is evaluated whole; what runs on devices, by the simulator.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _stablehlo
from jaxlib.mlir.passmanager import PassManager
from tests.ops.oracles import assert_close
from tests.shardy.peer import run_peer

from bench.lit.judging import Verdict
from eggshard import shardy
from eggshard.errors import EggshardError, ProgramError
from eggshard.frontends.jaxlib_context import make_context
from eggshard.frontends.stablehlo.reading import read
from eggshard.ops.evaluate import evaluate_region
from eggshard.program.mesh import Mesh
from eggshard.shardy.module import symbol
from eggshard.simulate.simulator import run
from eggshard.spmd.manual import manual_program

_PARTS = re.compile(r"^//--- (\S+)\n", re.MULTILINE)
#: The custom form of the op that compares, whose dialect jaxlib does not have: generic ops of any dialect it reads.
_CUSTOM = re.compile(r"^ *check\.expect_eq (%[^:]*) : (.*)$", re.MULTILINE)
_LOCAL, _BATCHING = "convert-global-to-local", "explicit-gather-scatter-batching"
_PARALLEL, _EQUAL, _RETURN = "interpreter.run_parallel", "check.expect_eq", "func.return"
_FUNC = ("insert-explicit-reshards", "reshard-to-collectives", "pad-for-divisibility", _BATCHING)


@dataclass(frozen=True)
class Build:
    """Passes that the functions of the first part go through, and what is then renamed: from, to."""

    passes: tuple[str, ...]
    renamed: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class Executable:
    """A run of a test file: what is made of its functions, and the ``main`` that compares them."""

    name: str
    functions: str
    main: str
    builds: tuple[Build, ...]

    @property
    def replicas(self) -> bool:
        """Whether devices are replicas, not partitions."""
        return re.search(r"programs = \[\[@\w+\],", self.main) is not None


def executables(root: Path) -> Iterator[Executable]:
    """The runs of all files with parts, in the order of paths."""
    for path in sorted(root.rglob("*.mlir")):
        _, *pieces = _PARTS.split(path.read_text())
        parts = dict(zip(pieces[::2], pieces[1::2], strict=True))
        parts = {name: _CUSTOM.sub(r'"check.expect_eq"(\1) : (\2, \2) -> ()', part) for name, part in parts.items()}
        if "part2.mlir" in parts:
            for options, builds in _builds(path, parts["part1.mlir"]):
                name = f"{path.relative_to(root)} {options}".strip()
                yield Executable(name, parts["part1.mlir"], parts["part2.mlir"], builds)


def _builds(path: Path, functions: str) -> Iterator[tuple[str, tuple[Build, ...]]]:
    """What the RUN lines say, of which those that call a script do what the script of that folder does."""
    whole = Build((), ("parallel_", "sequential_"))
    besides = (whole,) if "@parallel_" in functions and "@sequential_" not in functions else ()
    lines = re.findall(r"^// RUN: (.*)$", re.sub(r"\\\n// RUN:", "", path.read_text()), re.MULTILINE)
    written = []
    for line in lines:
        if "run_sdy_interpreter_test.sh" not in line:
            given = re.search(rf"{_LOCAL}=\"([\w=-]+)\".*s/(\w+)/(\w+)/g", line)
            written += [Build((f"{_LOCAL}{{{given[1]}}}",), (given[2], given[3]))] if given else []
        elif "gather_scatter_batching" in path.parent.name:
            yield "", (Build((_BATCHING,)), Build((), ("transformed_", "original_")))
        elif "partitioner" in path.parent.name:
            option = re.search(r"(?:enable_halo_exchange=)?\"?(true|false)", line)
            halo = option[1] if option else "true"
            yield f"halo={halo}", (Build((
                "insert-explicit-reshards{enable-full-version=true}",
                f"resolve-permutation-factors{{enable-halo-exchange={halo}}}", "reshard-to-collectives",
                "pad-for-divisibility", "resolve-single-device-sharding", _LOCAL)), *besides)  # fmt: skip
        else:
            yield "", (Build((_LOCAL,)), *besides)
    if written:
        yield "", tuple(written)


def judge(executable: Executable) -> tuple[Verdict, Verdict]:
    """What comes of a run by our passes, and by jaxlib's."""
    return _outcome(executable, _ours), _outcome(executable, _theirs)


def _outcome(executable: Executable, passes: Any) -> Verdict:
    if executable.replicas:
        return Verdict("replicas")
    try:
        parts = [_made(executable.functions, build, passes) for build in executable.builds]
        _check("\n".join([*parts, executable.main]))
    except AssertionError as error:
        return Verdict("wrong", str(error).strip().partition("\n")[0])
    except EggshardError as error:
        return Verdict("refused", str(error))
    return Verdict("right")


def _made(functions: str, build: Build, passes: Any) -> str:
    """The text of the functions after a build, without meshes and shardings."""
    text = passes(functions, build.passes) if build.passes else functions
    with make_context():
        module = ir.Module.parse(shardy.transform(text, "drop-sharding-and-mesh"))
        made = "\n".join(str(op) for op in module.body.operations)
    return made.replace(*build.renamed) if build.renamed[0] else made


def _ours(text: str, passes: Sequence[str]) -> str:
    return shardy.transform(text, ",".join(passes))


def _theirs(text: str, passes: Sequence[str]) -> str:
    """By jaxlib's passes; the one that it does not have leaves modules as they are."""
    named = [f"func.func(sdy-{p})" if p.startswith(_FUNC) else f"sdy-{p}" for p in passes
             if p != "resolve-single-device-sharding"]
    made = run_peer(text, ",".join(named))
    if made.failure:
        raise ProgramError(made.failure)
    return made.text


def _check(text: str) -> None:
    """Run ``main``; AssertionError where values differ that are to be equal."""
    results: list[np.ndarray] = []
    while True:
        prefix, parallel = _until_parallel(text, results)
        values = evaluate_region(read(prefix).region, results)
        if parallel is None:
            for i, (a, b) in enumerate(zip(values[::2], values[1::2], strict=True)):
                assert_close(a, b, f"comparison {i}")
            return
        function, devices = parallel
        count = len(values) // devices
        shards = [np.stack(values[i::count]) for i in range(count)]
        region = read(function).region
        found = run(manual_program(Mesh({"devices": devices}), region, Mesh({})), shards)
        results += [np.asarray(shard[device]) for device in range(devices) for shard in found]


def _until_parallel(text: str, known: Sequence[np.ndarray]) -> tuple[str, tuple[str, int] | None]:
    """``main`` up to its next parallel run, of which it returns the operands; results of earlier ones are arguments.

    Also the program that then runs, and on how many devices; without one, ``main`` returns what is compared.
    """
    with _parsed(text) as module:
        block = _named(module, "main").regions[0].blocks[0]
        ops = [op.operation for op in block.operations]
        runs = [op for op in ops if op.name == _PARALLEL]
        met = 0
        while met < len(runs) and len(block.arguments) < len(known):
            for result in runs[met].results:
                result.replace_all_uses_with(block.add_argument(result.type, ir.Location.unknown()))
            met += 1
        following = ops[ops.index(runs[met]) :] if met < len(runs) else ops[-1:]
        returned = list(following[0].operands) if met < len(runs) else \
            [value for op in ops if op.name == _EQUAL for value in op.operands]
        programs = re.findall(r"@(\w+)", str(following[0].attributes["programs"])) if met < len(runs) else []
        with ir.InsertionPoint(ops[-1]):
            ir.Operation.create(_RETURN, operands=returned)
        gone = [op for op in ops if op in following or op.name == _EQUAL or op in runs]
        for op in reversed(gone):
            op.erase()
        type_ = ir.FunctionType.get([a.type for a in block.arguments], [value.type for value in returned])
        _named(module, "main").attributes["function_type"] = ir.TypeAttr.get(type_)
        main = _alone(module, "main")
    if not programs:
        return main, None
    if len(set(programs)) > 1:
        raise ProgramError(f"devices run programs of several names: {sorted(set(programs))}")
    with _parsed(text) as module:
        _named(module, "main").erase()
        return main, (_alone(module, programs[0]), len(programs))


@contextmanager
def _parsed(text: str) -> Iterator[Any]:
    context = make_context()
    _stablehlo.register_interpreter_dialect(context)
    context.allow_unregistered_dialects = True
    with context, ir.Location.unknown():
        yield ir.Module.parse(text)


def _named(module: Any, name: str) -> Any:
    return next(op.operation for op in module.body.operations if symbol(op.operation) == name)


def _alone(module: Any, name: str) -> str:
    """The module's text with that function as ``main``, and what it calls."""
    for op in module.body.operations:
        op.operation.attributes["sym_visibility"] = ir.StringAttr.get("private")
    function = _named(module, name)
    function.attributes["sym_name"] = ir.StringAttr.get("main")
    function.attributes["sym_visibility"] = ir.StringAttr.get("public")
    PassManager.parse("builtin.module(symbol-dce)").run(module.operation)
    return str(module)
