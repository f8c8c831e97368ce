from __future__ import annotations

import inspect

import pytest
from tests.shardy.clean_up.features import ALL
from tests.shardy.clean_up.written import WRITTEN
from tests.shardy.differential import canonical
from tests.shardy.modules import random_module
from tests.shardy.peer import run_peer

import eggshard as es
from eggshard import shardy
from eggshard.errors import ProgramError
from eggshard.shardy.catalogue import PASSES
from eggshard.shardy.passes import read_call

#: jaxlib's export pipeline, as far as it decides nothing.
CLEAN_UP = "avoid-export-for-partitioning=true"
GROUPED = """
  sdy.mesh @mesh = <["x"=4, "y"=2]>
  func.func @main(%a: tensor<8x8xf32>, %b: tensor<8x8xf32>) -> tensor<8x8xf32> {
    sdy.sharding_group %a group_id=0 : tensor<8x8xf32>
    sdy.sharding_group %b group_id=0 : tensor<8x8xf32>
    %0 = sdy.sharding_constraint %a <@mesh, [{"x", ?}, {?}]> : tensor<8x8xf32>
    %1 = sdy.sharding_constraint %0 <@mesh, [{}, {"x"}]> : tensor<8x8xf32>
    return %1 : tensor<8x8xf32>
  }
"""


def test_export_runs_in_the_original_order() -> None:
    names = [read_call(step)[0] for step in shardy.PIPELINES["export"].steps(inline_meshes=True)]
    assert names == [
        "constant-or-scalar-merger", "sink-data-flow-edges", "remove-sharding-groups", "sharding-constraint-to-reshard",
        "update-non-divisible-input-output-shardings", "remove-sub-axes-in-input-output-shardings", "close-shardings",
        "verify-unreduced-axes", "insert-explicit-reshards", "canonicalize-collectives", "drop-sharding-rules",
        "inline-meshes",
    ]  # fmt: skip


def test_options_choose_steps() -> None:
    export = shardy.PIPELINES["export"].steps
    full = export(enable_insert_explicit_collectives=True, mode="global")
    assert "insert-explicit-reshards{enable-full-version=true mode=global}" in full
    assert "reshard-to-collectives{mode=global}" in full
    assert "remove-propagation-debug-info" in export(dump_sharding_origins=True)
    assert "remove-propagation-debug-info" not in export(dump_sharding_origins=True, keep_notes=True)
    assert export(avoid_export_for_partitioning=True, update_non_divisible_input_output_shardings=False) == [
        "constant-or-scalar-merger", "sink-data-flow-edges", "close-shardings", "drop-sharding-rules"
    ]
    assert shardy.steps_of("partition{enable-halo-exchange=false}")[-1] == "drop-sharding-and-mesh"


@pytest.mark.parametrize("name, message", [
    ("exports", "there is no pipeline 'exports'; there are import, propagation, export, partition"),
    ("export{halo=true}", "pipeline export has no option 'halo'; it has keep-sharding-rules, "),
    ("export{inline-meshes=maybe}", "option inline-meshes of pipeline export is true or false, not 'maybe'"),
    ("export{", "'export{' is not a name with options"),
])  # fmt: skip
def test_mistakes_name_what_there_is(name: str, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        shardy.steps_of(name)


@pytest.mark.parametrize("seed", range(50))
def test_export_before_partitioning_agrees_with_jaxlib(seed: int) -> None:
    text = random_module(seed, **ALL | dict(edges=True, priorities=0))
    theirs = run_peer(text, f"sdy-export-pipeline{{{CLEAN_UP}}}")
    assert not theirs.failure
    assert shardy.transform(text, shardy.steps_of(f"export{{{CLEAN_UP}}}")) == theirs.text


def test_passes_are_functions_on_programs() -> None:
    listed = dir(shardy)
    assert {name.replace("-", "_") for name in PASSES} <= set(listed) and "run" in listed
    sink = shardy.sink_data_flow_edges
    assert str(inspect.signature(sink)) == (
        "(program, *, sink_debug_sharding_origins=False, sink_debug_propagation_edge_sharding=False)")
    assert sink.__doc__ and sink.__doc__.startswith("Move the sharding of every data-flow edge")
    program = es.load(GROUPED)
    for after in (shardy.remove_sharding_groups(program), shardy.run(program, ["remove-sharding-groups"])):
        assert after.text and "group" not in after.text and "sharding_constraint" in after.text
    assert shardy.sharding_constraint_to_reshard(program).text.count("sdy.reshard") == 2
    exported = shardy.pipeline(program, "export", avoid_export_for_partitioning=True)
    assert exported.text == shardy.transform(program.text, shardy.steps_of(f"export{{{CLEAN_UP}}}"))


def test_what_is_no_pass_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'close_sharding'"):
        shardy.close_sharding  # noqa: B018
    with pytest.raises(ProgramError, match="close-shardings has no option 'force'; it has none"):
        shardy.close_shardings(WRITTEN["no mesh, no shardings"], force=True)


def test_every_pass_says_what_it_does() -> None:
    for name, found in PASSES.items():
        assert len(found.summary) > 20, name
        if "clean_up" in found.run.__module__:
            assert all(option in (inspect.getdoc(found.run) or "") for option in found.options), name


@pytest.mark.parametrize("kind", WRITTEN)
def test_no_passes_leave_the_text(kind: str) -> None:
    assert shardy.transform(WRITTEN[kind], "") == canonical(WRITTEN[kind])
