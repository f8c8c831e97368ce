from __future__ import annotations

import pytest
from tests.shardy.differential import assert_agrees
from tests.shardy.peer import run_peer
from tests.shardy.propagation.generated import CALLS, REGIONS, modules
from tests.shardy.propagation.programs import PROGRAMS

from eggshard import shardy
from eggshard.errors import ProgramError, ShardingError

#: Passes, and what they are run on besides the modules written by hand.
CASES = {
    "add-data-flow-edges": REGIONS,
    "apply-sharding-constraints": REGIONS,
    "add-data-flow-edges,apply-sharding-constraints": REGIONS,
    "sharding-group-import": REGIONS,
    "constant-or-scalar-splitter": {**CALLS, "regions": ("while", "case"), "scalars": True},
    "manual-axes-cleanup": REGIONS,
    "pre-order-funcs": CALLS,
    "flatten-call-graph": CALLS,
    "propagate-sharding-from-func-to-call": CALLS,
    "add-func-data-flow-edges": CALLS,
    "flatten-call-graph,import-func-calls": CALLS,
    "flatten-call-graph,import-func-calls,export-named-computations": CALLS,
    "flatten-call-graph,unflatten-call-graph": CALLS,
    "unflatten-call-graph{dedup-functions-fully=true}": CALLS,
    "insert-func-call-reshards": CALLS,
}
IMPORT = (
    "symbol-dce,sdy-lift-inlined-meshes,sdy-remove-size-one-axes,sdy-propagate-sharding-from-func-to-call,"
    "sdy-constant-or-scalar-splitter,symbol-dce,sdy-manual-axes-cleanup,sdy-add-data-flow-edges")
PROPAGATION = (
    f"{IMPORT},sdy-flatten-call-graph,symbol-dce,sdy-import-func-calls,symbol-dce,sdy-apply-sharding-constraints,"
    "sdy-sharding-group-import,sdy-pre-order-funcs,sdy-user-priority-propagate,sdy-export-named-computations,"
    "sdy-propagate-to-func-results,sdy-unflatten-call-graph,symbol-dce,sdy-insert-func-call-reshards")
FUNCTION_EDGES = (
    f"{IMPORT},sdy-apply-sharding-constraints,sdy-sharding-group-import,sdy-add-func-data-flow-edges,"
    "sdy-pre-order-funcs,sdy-user-priority-propagate,sdy-propagate-to-func-results,"
    "func.func(sdy-sink-func-data-flow-edges),sdy-unflatten-call-graph,symbol-dce,sdy-insert-func-call-reshards")
EVERYTHING = {
    **CALLS, "regions": ("while", "case", "barrier", "manual"), "constraints": True, "scalars": True,
    "size_one_axes": True, "priorities": 0.2}


@pytest.mark.parametrize("passes", CASES)
def test_modules_are_changed_as_jaxlib_does(passes: str) -> None:
    for text in [*modules(16, **CASES[passes]), *PROGRAMS.values()]:
        assert_agrees(text, passes)


@pytest.mark.slow
@pytest.mark.parametrize("passes", CASES)
def test_more_modules_are_changed_as_jaxlib_does(passes: str) -> None:
    for text in modules(50, **CASES[passes]):
        assert_agrees(text, passes)


def assert_pipelines_agree(text: str, pipeline: str) -> None:
    """jaxlib's passes, with those of MLIR between them, leave the same text as ours of the same names."""
    names = [step.replace("func.func(", "").rstrip(")").removeprefix("sdy-") for step in pipeline.split(",")]
    theirs = run_peer(text, pipeline)
    assert not theirs.failure, theirs.failure
    assert shardy.transform(text, names) == theirs.text


@pytest.mark.filterwarnings("ignore:the values of sharding group")
@pytest.mark.parametrize("pipeline", [IMPORT, PROPAGATION, FUNCTION_EDGES], ids=["import", "calls", "function edges"])
def test_whole_pipelines_agree_with_jaxlibs(pipeline: str) -> None:
    for text in modules(30, **EVERYTHING):
        assert_pipelines_agree(text, pipeline)
    for name, text in PROGRAMS.items():
        if name != "a named computation":  # jaxlib's pass puts a second edge behind its first: docs/shardy.md
            assert_pipelines_agree(text, pipeline)


def test_the_import_pipeline_is_jaxlibs() -> None:
    for text in modules(5, **EVERYTHING, inlined_meshes=True):
        theirs = run_peer(text, "sdy-import-pipeline")
        assert not theirs.failure and shardy.transform(text, shardy.steps_of("import")) == theirs.text


def test_groups_that_cannot_be_are_refused() -> None:
    shapes = PROGRAMS["groups that meet"].replace("%e group_id = 3", "%e group_id = 7")
    with pytest.raises(ShardingError, match="must have the same shape for groupId: 7"):
        shardy.transform(shapes, "sharding-group-import")
    inside = PROGRAMS["manual along one axis, free along others"].replace(
        "sdy.return", "sdy.sharding_group %2 group_id = 1 : tensor<2x4xf32>\n sdy.return").replace(
        "%3 =", "sdy.sharding_group %1 group_id = 1 : tensor<8x4xf32>\n %3 =")
    with pytest.raises(ShardingError, match="cannot cross ManualComputationOp boundaries for groupId: 1"):
        shardy.transform(inside, "sharding-group-import")


def test_a_manual_computation_without_a_mesh_is_refused() -> None:
    text = """
      sdy.mesh @mesh = <["x"=2]>
      func.func @main() {
        sdy.manual_computation() in_shardings=[] out_shardings=[] manual_axes={"x"} () {
          %0 = stablehlo.constant dense<1.0> : tensor<f32>
          sdy.return
        } : () -> ()
        return
      }"""
    with pytest.raises(ShardingError, match="manual along x, but has no operands"):
        shardy.transform(text, "manual-axes-cleanup")


def test_a_call_of_nothing_is_refused() -> None:
    text = """
      func.func @main(%a: tensor<f32>) -> tensor<f32> {
        %0 = func.call @gone(%a) : (tensor<f32>) -> tensor<f32>
        return %0 : tensor<f32>
      }"""
    with pytest.raises(ProgramError, match="gone"):
        shardy.transform(text, "flatten-call-graph")


@pytest.mark.parametrize(("options", "passes"), [("", PROPAGATION), ("{dedup-functions-fully=true}", FUNCTION_EDGES)])
def test_the_propagation_pipeline_begins_as_jaxlibs_does(options: str, passes: str) -> None:
    names = [step.replace("func.func(", "").rstrip(")").removeprefix("sdy-") for step in passes.split(",")]
    assert shardy.steps_of(f"propagation{options}")[: len(names)] == names
