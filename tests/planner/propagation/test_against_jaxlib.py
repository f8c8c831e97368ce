"""A program is prepared and propagated as jaxlib's passes do it with its text, op by op."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import pytest
from tests.frontends.jax_programs import PROGRAMS, sharded
from tests.shardy.peer import run_peer
from tests.shardy.propagation.generated import PLAIN, REGIONS, modules
from tests.shardy.propagation.test_bench_programs import FAMILIES
from tests.shardy.propagation.test_import_passes import PROPAGATION

from eggshard.errors import EggshardError
from eggshard.frontends import load
from eggshard.ops import registry
from eggshard.ops.module_text import program_text
from eggshard.planner.propagation.convergence import Propagation
from eggshard.planner.propagation.draft import draft_of, within
from eggshard.planner.propagation.preparation import prepare
from eggshard.planner.propagation.program_graph import ProgramGraph
from eggshard.planner.propagation.strategies import aggressive
from eggshard.program.program import Program, Region
from eggshard.program.sharding import whole_mesh
from eggshard.shardy.module import parsed, rank

FEATURES = {**PLAIN, **REGIONS, "families": PLAIN["families"], "size_one_axes": True, "priorities": 0.2}
#: A tensor's type, and its sharding before export.
Row = tuple[str, str]
OPENED = ("func.func", "sdy.manual_computation", "stablehlo.case", "stablehlo.if", "stablehlo.while")


def ours(program: Program) -> list[Row]:
    function, outputs = draft_of(program)
    prepare(function)
    graph = ProgramGraph(function, whole_mesh(program.mesh), outputs)
    Propagation(graph).by_priorities([aggressive])
    values = [*function.blocks[0].arguments]
    for op in within(function):
        if not graph.is_erased(op):
            values += op.results
    return [(str(value.type), str(graph.kept(value))) for value in values if value.type.rank]


def theirs(program: Program) -> list[Row]:
    found = run_peer(program_text(program), PROPAGATION)
    assert not found.failure, found.failure
    with parsed(found.text) as module:
        def rows(op: Any) -> Iterator[tuple[Any, Any]]:
            stated = (module.result_shardings(op) if len(op.results) else None) or (None,) * len(op.results)
            yield from zip(op.results, stated, strict=True)
            if op.name in OPENED:
                for inner in (inner for region in op.regions for block in region.blocks for inner in block.operations):
                    yield from rows(inner.operation)

        (function,) = module.functions
        arguments = zip(function.regions[0].blocks[0].arguments, module.argument_shardings(function), strict=True)
        return [(str(v.type), str(s)) for v, s in (*arguments, *rows(function)) if rank(v)]


def printed_as_they_are(region: Region) -> bool:
    """Whether every op is one op in the text."""
    return all(
        not registry.get(op.name).spelling.startswith("eggshard.") and all(map(printed_as_they_are, op.regions))
        for op in region.ops)


def assert_agrees(program: Program) -> None:
    if printed_as_they_are(program.region):
        assert ours(program) == theirs(program)


@pytest.mark.parametrize("name", PROGRAMS)
def test_jax_programs(name: str) -> None:
    function, arguments = PROGRAMS[name]
    shardings = jax.tree.map(lambda a: sharded("x") if a.ndim and a.shape[0] % 4 == 0 else sharded(), arguments)
    assert_agrees(load(jax.jit(function, in_shardings=shardings).lower(*arguments)))


def test_generated_modules() -> None:
    read = 0
    for text in modules(60, **FEATURES):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                program = load(text)
            except EggshardError:
                continue
            assert_agrees(program)
        read += 1
    assert read > 20


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_programs_of_the_benches(family: str) -> None:
    for program in importlib.import_module(f"bench.programs.{family}").PROGRAMS:
        assert_agrees(load(program.module))
