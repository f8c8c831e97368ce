"""The choice of the mesh: which there are, which are finer, what bounds leave out, and that the best is found."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eggshard as es
from eggshard.errors import MeshError
from eggshard.frontends import load
from eggshard.planner.choosing import meshes as choosing
from eggshard.planner.choosing.choice import Choice, Chooser, planned_at, with_open_inputs
from eggshard.planner.choosing.meshes import candidates, choose_mesh, shape
from eggshard.planner.request import requested
from eggshard.program.mesh import Mesh
from eggshard.program.sharding import AUTO

LIMITS = es.Limits(proof=0.0)


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, np.float32)


def program_of(function, *arguments):
    """How a function's program is on a mesh, open at all ends."""
    program = load(jax.jit(function).lower(*arguments))
    return program, lambda mesh: with_open_inputs(replace(program, mesh=mesh), AUTO)


def descent(w, x):
    return w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)


def test_candidates_are_the_ordered_factorisations():
    assert [shape(m) for m in candidates(8)] == ["8", "2 x 4", "4 x 2", "2 x 2 x 2"]
    assert [len(candidates(n)) for n in (1, 2, 7, 12, 64)] == [1, 1, 1, 8, 16]
    assert all(m.size == 60 and min(m.axes.values()) > 1 for m in candidates(60))
    for wrong in (0, True, 2.0, None):
        with pytest.raises(MeshError, match="give a number of devices"):
            candidates(wrong)


def test_the_mesh_chosen_is_the_cheapest():
    program, on = program_of(descent, f32(256, 512), f32(128, 256))
    request = requested(program, "tpu-v5e", limits=LIMITS, rewrites=[])
    found = choose_mesh(request, on, 8, {0: 0})
    assert len(found.meshes) == 4
    cost = planned_at(request, on(found.meshes[0].mesh), found.choice).cost.total
    for mesh in candidates(8):
        program = on(mesh)
        other = planned_at(request, program, Chooser(replace(request, loaded=program), {0: 0}).cheapest)
        assert cost <= other.cost.total * (1 + 1e-3)


def test_of_meshes_as_good_the_one_of_fewest_axes_is_chosen():
    program, on = program_of(jnp.tanh, f32(512, 512))
    found = choose_mesh(requested(program, "tpu-v5e", limits=LIMITS, rewrites=[]), on, 8, {})
    assert found.meshes[0].mesh.axes == {"x": 8}


def known(costs, searched, monkeypatch):
    """Let choices cost so much, by rewrites half of that, and be planned at that."""
    def chooser(request, carried):
        mesh, quick = request.loaded.mesh, not request.rules
        searched.append(shape(mesh) if quick else f"{shape(mesh)} again")
        return SimpleNamespace(cheapest=Choice((), (), cost=costs[shape(mesh)] / (1 if quick else 2)))

    monkeypatch.setattr(choosing, "Chooser", chooser)
    monkeypatch.setattr(choosing, "planned_at", lambda request, program, choice: SimpleNamespace(
        cost=SimpleNamespace(total=choice.cost)))


def search_of(costs, monkeypatch, **limits):
    """The search where choices cost so much per shape."""
    program, on = program_of(jnp.tanh, f32(64, 64))
    searched = []

    known(costs, searched, monkeypatch)
    monkeypatch.setattr(Choice, "held", lambda self, program: 0)
    request = requested(program, "tpu-v5e", limits=es.Limits(**limits))
    return choose_mesh(request, on, 8, {}), searched


COSTS = {"2 x 2 x 2": 2.0, "2 x 4": 1.0, "4 x 2": 1.02, "8": 1.0}


def test_meshes_of_three_axes_come_last_and_the_best_is_searched_again(monkeypatch):
    found, searched = search_of(COSTS, monkeypatch)
    assert searched == ["2 x 4", "4 x 2", "8", "2 x 2 x 2", "8 again", "4 x 2 again"]
    assert [(shape(t.mesh), t.planned) for t in found.meshes] == [
        ("8", 0.5), ("4 x 2", 0.51), ("2 x 4", None), ("2 x 2 x 2", None)]
    assert found.choice.cost == 0.5


def test_a_choice_with_rewrites_is_taken_where_its_plan_is_cheaper(monkeypatch):
    known(COSTS, [], monkeypatch)
    monkeypatch.setattr(choosing, "planned_at", lambda request, program, choice: SimpleNamespace(
        cost=SimpleNamespace(total=1 / choice.cost)))
    monkeypatch.setattr(Choice, "held", lambda self, program: 0)
    program, on = program_of(jnp.tanh, f32(64, 64))
    assert choose_mesh(requested(program, "tpu-v5e"), on, 8, {}).choice.cost >= 1.0


def test_what_looks_at_neighbours_is_looked_at_with_windows_too(monkeypatch):
    windows = []

    def chooser(request, carried):
        if not request.rules:
            windows.append((shape(request.loaded.mesh), bool(request.limits.windows)))
        return SimpleNamespace(cheapest=Choice((), (), cost=1.0 if request.limits.windows else 2.0))

    known(COSTS, [], monkeypatch)
    monkeypatch.setattr(choosing, "Chooser", chooser)
    monkeypatch.setattr(Choice, "held", lambda self, program: 0)
    program, on = program_of(lambda x: x[2:] - x[:-2], f32(64, 64))
    found = choose_mesh(requested(program, "tpu-v5e"), on, 4, {})
    assert sorted(windows) == [("2 x 2", False), ("2 x 2", True), ("4", False), ("4", True)]
    assert [t.cost for t in found.meshes] == [1.0, 1.0]


def test_at_the_end_of_the_time_what_is_found_stands(monkeypatch):
    found, searched = search_of(COSTS, monkeypatch, seconds=0)
    assert searched == ["2 x 4"] and shape(found.meshes[0].mesh) == "2 x 4"
    assert [t.why for t in found.meshes[1:]] == ["time was up"] * 3


def test_what_does_not_fit_is_not_chosen(monkeypatch):
    monkeypatch.setattr(Choice, "held", lambda self, program: 9 if self.cost == 1.0 else 1)
    program, on = program_of(jnp.tanh, f32(64, 64))
    known(COSTS, [], monkeypatch)
    monkeypatch.setattr(choosing, "fits", lambda plan, limit: True)
    found = choose_mesh(requested(program, "tpu-v5e"), on, 8, {}, memory_limit=5)
    assert shape(found.meshes[0].mesh) == "4 x 2"


def test_programs_of_text():
    text = jax.jit(lambda x, w: x @ w).lower(f32(512, 256), f32(256, 512)).as_text()
    plan = es.optimize(text, shardings=es.AUTO, mesh=es.AUTO, devices=4, cost_model="tpu-v5e", limits=LIMITS)
    assert plan.mesh.size == 4 and plan.input_placements[0].used_axes
    for wrong in ({"mesh": es.AUTO, "shardings": es.AUTO}, {"devices": 4, "shardings": es.AUTO},
                  {"mesh": es.AUTO, "devices": 4}):
        with pytest.raises(MeshError, match="give all three"):
            es.optimize(text, **wrong)
    stated = replace(load(text), mesh=Mesh({"x": 2}))
    with pytest.raises(MeshError, match="so that none can be chosen"):
        es.optimize(stated, shardings=es.AUTO, mesh=es.AUTO, devices=4)
