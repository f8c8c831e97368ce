"""Workspaces of device programs: what has a buffer, for how long, and where."""

import pytest
from tests.engines.workspace.programs import branching, swapping_loop

from eggshard.engines.workspace.steps import staging_name, state_name, value_name, workspace_of
from eggshard.errors import WorkspaceError


def lifetimes(workspace):
    return {r.name: r.lifetime for r in workspace.requests}


def test_names_say_where_a_value_is():
    assert value_name((), 3) == "v3"
    assert value_name((7, "body", 2, "branch", 0), 3) == "7.body.2.branch.0.v3"
    assert state_name((7, "body"), 2, 1) == "7.body.2.state.1"


def test_inputs_and_outputs_live_to_the_end():
    workspace = workspace_of(swapping_loop())
    end = len(workspace.instants) - 1
    for v in (0, 1):
        assert lifetimes(workspace)[f"v{v}"] == (0, end)
    for v in (5, 7):
        assert lifetimes(workspace)[f"v{v}"].last == end


def test_a_loops_state_has_two_slots_for_the_whole_loop():
    workspace = workspace_of(swapping_loop())
    inside = [t for t, at in enumerate(workspace.instants) if at.path[:1] == (1,) or (at.path == () and at.step == 1)]
    for k in range(4):
        request = workspace.layout.by_name[state_name((), 1, k)]
        assert request.slots == 2 and request.lifetime == (inside[0], inside[-1])
    assert [at.doing for at in workspace.instants if at.path == () and at.step == 1] == [
        "enter", "decide", "carry", "leave"
    ]
    assert workspace.home((1, "body"), 2) == "1.state.2" == workspace.home((1, "condition"), 2)
    assert workspace.home((1, "body"), 7) == "1.body.v7"


def test_branches_read_the_operands_own_buffers_and_share_memory():
    workspace = workspace_of(branching())
    assert workspace.home((0, "branch", 0), 0) == "v1" == workspace.home((0, "branch", 1), 0)
    assert "0.branch.0.v0" not in workspace.layout.by_name


def test_a_slice_is_addressed_from_the_base_of_the_whole():
    layout = workspace_of(swapping_loop(), guard=10).layout
    stride = layout.stride
    assert stride % 64 == 0 and layout.total(4) == 4 * stride
    assert layout.guard_range == (stride - 64, stride) and layout.extent <= stride - 64
    assert layout.address("1.state.1", 3, 4, slot=1) == 3 * stride + layout.offset("1.state.1") + 64
    for bad in ({"device": 4}, {"device": -1}, {"device": 0, "slot": 2}, {"device": 0, "name": "v99"}):
        with pytest.raises(WorkspaceError):
            layout.address(**{"name": "1.state.1", "devices": 4, **bad})


def test_steps_may_ask_for_scratch_while_they_run():
    """It is needed at one instant, beside the step's operands and results."""
    def staging(path, step, program):
        return [(0, 1000)] if program.steps[step].action.messages else ()

    workspace = workspace_of(swapping_loop(), staging=staging)
    (name,) = workspace.staging
    assert name == staging_name((1, "body"), 2, 0) == "1.body.2.staging.0"
    life = workspace.layout.by_name[name].lifetime
    assert life.first == life.last and workspace.instants[life.first].doing == "collective-permute"
    assert life.first in range(*workspace.layout.by_name["1.body.v6"].lifetime)
    workspace.proof().check()


def test_operands_that_peers_read_are_shared_and_nothing_else_is():
    shared = {r.name for r in workspace_of(branching()).requests if r.sharing == "shared-read"}
    assert shared == {"v1", "0.branch.0.v1"}
