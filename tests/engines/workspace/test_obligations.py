"""Proofs list what must hold, say how, and find what does not; tables and pictures show workspaces."""

import re
from dataclasses import replace

import pytest
from tests.engines.workspace.programs import branching, swapping_loop

from eggshard.engines.workspace.layout import lay_out
from eggshard.engines.workspace.obligations import Apart, prove
from eggshard.engines.workspace.requests import Lifetime, Request
from eggshard.engines.workspace.steps import workspace_of
from eggshard.errors import WorkspaceError


def requests():
    return [Request("a", 640, Lifetime(0, 1), sharing="shared-read"), Request("b", 64, Lifetime(1, 2)),
            Request("c", 100, Lifetime(2, 3)), Request("d", 1, Lifetime(0, 3))]


def test_every_obligation_is_listed_with_its_reason():
    layout = lay_out(requests())
    proof = prove(layout, instants=["start", "exchange", "add", "end"])
    obligations = list(proof)
    counted = {kind: sum(o.kind == kind for o in obligations) for kind in proof.counts}
    assert counted == proof.counts and sum(counted.values()) == len(obligations)
    assert counted["disjoint: addresses"] + counted["disjoint: lifetimes"] == 6
    (apart,) = (o for o in obligations if o.kind == "disjoint: lifetimes")
    assert set(apart.subjects) == {"a", "c"}
    assert apart.how == (
        "a ends with exchange, before c begins at add; peers' reads of it end with that step"
    )
    for o in obligations:
        if o.kind == "disjoint: addresses":
            low, high = sorted(o.subjects, key=layout.offset)
            assert o.how == f"{low} ends at byte {layout.end(low)}, {high} begins at {layout.offset(high)}"
            assert layout.end(low) <= layout.offset(high)
    assert not [o for o in obligations if "NOT SHOWN" in o.how]
    assert proof.check() is proof
    assert "disjoint: addresses" in str(proof) and "peers' reads" in str(proof)


def test_what_does_not_hold_is_named():
    layout = lay_out(requests())
    unknown = prove(layout, used=["a", "b", "c", "d", "e"])
    for proof, what in (
        (unknown, "'e' is used, but nobody requested it"),
        (prove(layout, used=["a", "b", "c"]), "'d' was requested, but nobody uses it"),
        (prove(layout, apart=[Apart("a", "c", "step 3")]), "may share memory at step 3"),
    ):
        with pytest.raises(WorkspaceError, match=re.escape(what)):
            proof.check()
    assert [o.subjects for o in unknown if o.how == "NOT SHOWN"] == [("e",)]


def test_layouts_that_somebody_damaged_are_found():
    layout = lay_out(requests(), guard=64)
    top = layout.offsets.index(max(layout.offsets))

    def moved(to):
        return replace(layout, offsets=(*layout.offsets[:top], to, *layout.offsets[top + 1:]))

    narrow = replace(layout)
    narrow.__dict__["stride"] = layout.stride - 64
    for damaged, what in ((moved(0), "overlap"), (moved(layout.offsets[top] + 1), "does not begin on a line"),
                          (narrow, "beyond")):
        with pytest.raises(WorkspaceError, match=what):
            prove(damaged).check()


@pytest.mark.parametrize("program", [swapping_loop, branching])
def test_device_programs_are_proved_and_shown(program):
    workspace = workspace_of(program(), guard=64)
    proof = workspace.proof().check()
    assert proof.counts["completeness"] == len(workspace.requests)
    assert {"apart", "disjoint: lifetimes", "lines", "stride"} <= set(proof.counts)
    table = str(workspace)
    whole, live = f"in all {4 * workspace.stride} bytes", f"live at once: {workspace.live_bytes}"
    for text in (whole, workspace.layout.version, live):
        assert text in table
    assert all(r.name in table for r in workspace.requests)
    picture = workspace.picture(width=40, height=10).splitlines()
    assert all(len(line) <= 12 + 40 for line in picture[:10])
    assert "instants 0 to" in workspace.picture()
    assert "a dot is free" in workspace.picture() and "time to the right" in workspace.svg()
    assert workspace.svg().count("<title>") == len([r for r in workspace.requests if r.bytes])


def test_programs_of_no_values():
    from eggshard.program.mesh import Mesh
    from eggshard.steps.steps import StepPlan

    workspace = workspace_of(StepPlan(Mesh({"x": 2}), (), (), (), ()))
    assert workspace.stride == 0 and workspace.total_bytes == 0
    assert str(workspace) and workspace.picture() and workspace.svg() and workspace.proof().check()
