"""Proofs list what must hold, say how, and find what does not; tables and pictures show workspaces."""

import re

import pytest
from tests.engines.workspace.programs import branching, swapping_loop

from eggshard.engines.workspace.layout import Layout, lay_out
from eggshard.engines.workspace.obligations import Apart, prove
from eggshard.engines.workspace.requests import Request
from eggshard.engines.workspace.steps import workspace_of
from eggshard.errors import WorkspaceError


def requests():
    return [Request.make("a", "n", (0, 1), sharing="shared-read"), Request.make("b", 64, (1, 2)),
            Request.make("c", 100, (2, 3)), Request.make("d", 1, persistent=True)]


def test_every_obligation_is_listed_with_its_reason():
    proof = prove(lay_out(requests()), instants=["start", "exchange", "add", "end"])
    obligations = list(proof)
    counted = {kind: sum(o.kind == kind for o in obligations) for kind in proof.counts}
    assert counted == proof.counts and sum(counted.values()) == len(obligations)
    assert counted["disjoint: order"] + counted["disjoint: lifetimes"] == 6 and counted["persistence"] == 1
    (apart,) = (o for o in obligations if o.kind == "disjoint: lifetimes")
    assert set(apart.subjects) == {"a", "c"}
    assert apart.how == (
        "a ends with exchange, before c begins at add; peers' reads of it end with that step"
    )
    assert not [o for o in obligations if "NOT SHOWN" in o.how]
    assert proof.check({"n": 0}, {"n": 1000}) is proof
    assert "disjoint: order" in str(proof) and "peers' reads" in str(proof)


def test_what_does_not_hold_is_named():
    layout = lay_out(requests())
    for proof, what in (
        (prove(layout, used=["a", "b", "c", "d", "e"]), "'e' is used, but nobody requested it"),
        (prove(layout, used=["a", "b", "c"]), "'d' was requested, but nobody uses it"),
        (prove(layout, known=[]), "depends on 'n', which is not known"),
        (prove(layout, apart=[Apart("a", "c", "step 3")]), "may share memory at step 3"),
    ):
        with pytest.raises(WorkspaceError, match=re.escape(what)):
            proof.check({"n": 1})
    assert [o.subjects for o in prove(layout, known=[]) if o.how == "NOT SHOWN"] == [("n",)]


def test_layouts_that_somebody_damaged_are_found():
    layout = lay_out(requests(), {"n": 640})
    top = layout.order[-1]
    floating = Layout(layout.requests, layout.order)
    floating.__dict__["below"] = {**layout.below, top: ()}
    with pytest.raises(WorkspaceError, match="neither stands above the other"):
        prove(floating).check()
    narrow = Layout(layout.requests, layout.order)
    evaluated = layout._evaluated({"n": 640})
    narrow._at[(("n", 640),)] = evaluated._replace(stride=evaluated.stride - 64)
    with pytest.raises(WorkspaceError, match="beyond"):
        prove(narrow).check({"n": 640})
    low = dict(evaluated.places)
    low[top] = low[top]._replace(offset=0)
    crossed = Layout(layout.requests, layout.order)
    crossed._at[(("n", 640),)] = evaluated._replace(places=low)
    with pytest.raises(WorkspaceError, match="overlap"):
        prove(crossed).check({"n": 640})


@pytest.mark.parametrize("program", [swapping_loop, branching])
def test_device_programs_are_proved_and_shown(program):
    workspace = workspace_of(program(), guard=64, devices="ranks")
    proof = workspace.proof().check()
    assert proof.counts["completeness"] == len(workspace.requests)
    assert {"apart", "disjoint: lifetimes", "granule", "stride"} <= set(proof.counts)
    table = str(workspace)
    for text in (f"{workspace.stride}*ranks bytes", workspace.layout.version, f"live at once: {workspace.live_bytes}"):
        assert text in table
    assert all(r.name in table for r in workspace.requests)
    picture = workspace.picture(width=40, height=10).splitlines()
    assert all(len(line) <= 12 + 40 for line in picture[:10])
    assert "instants 0 to" in workspace.picture()
    assert "a dot is free" in workspace.picture() and "time to the right" in workspace.svg()
    assert workspace.svg().count("<title>") == len([r for r in workspace.requests if r.bytes.constant])


def test_programs_of_no_values():
    from eggshard.program.mesh import Mesh
    from eggshard.steps.steps import StepPlan

    workspace = workspace_of(StepPlan(Mesh({"x": 2}), (), (), (), ()))
    assert workspace.stride == 0 and workspace.total_size.constant == 0
    assert str(workspace) and workspace.picture() and workspace.svg() and workspace.proof().check()
