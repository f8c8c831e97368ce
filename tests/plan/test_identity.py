"""Plans from JSON are for one program, one mesh and the versions that wrote them; what differs is named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec as P  # noqa: E402

import eggshard as es  # noqa: E402
from eggshard.costmodel import WireBytes  # noqa: E402
from eggshard.errors import EggshardError, MeshError, ProgramError  # noqa: E402
from eggshard.plan.identity import plan_fingerprint, program_fingerprint  # noqa: E402
from eggshard.plan.serialization import PLAN as PLAN_TEXT, opened, sealed  # noqa: E402

MESH = Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("x", "y"))


def lower(function: Any, *shapes: tuple[int, ...], mesh: Mesh = MESH, axis: str = "x") -> jax.stages.Lowered:
    given = [jax.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(mesh, P("x"))) for shape in shapes]
    return jax.jit(function, out_shardings=NamedSharding(mesh, P(axis or None))).lower(*given)


def double(v: Any) -> Any:
    return 2 * v


LOWERED = lower(double, (8, 4))
PLAN = es.optimize(LOWERED, cost_model=WireBytes())
TEXT = PLAN.to_json()


def test_what_a_plan_is_for() -> None:
    for mesh in (MESH, {"x": 4, "y": 2}, es.Mesh({"x": 4, "y": 2}), AbstractMesh((4, 2), ("x", "y"))):
        assert es.Plan.from_json(TEXT, mesh=mesh).require(mesh=mesh) == PLAN
    for program in (LOWERED, es.load(LOWERED), LOWERED.as_text(), lower(lambda other: 2 * other, (8, 4))):
        assert es.Plan.from_json(TEXT, program=program) == PLAN
    assert es.Plan.from_json(TEXT).agreed() == PLAN


def test_the_signature_comes_with_the_program() -> None:
    lowered = jax.jit(
        lambda v: {"twice": 2 * v["a"]}, out_shardings=NamedSharding(MESH, P("x"))
    ).lower({"a": jax.ShapeDtypeStruct((8, 4), "float32", sharding=NamedSharding(MESH, P("x")))})
    text = es.optimize(lowered, cost_model=WireBytes()).to_json()
    out = es.Plan.from_json(text, program=lowered).to_jax()({"a": np.ones((8, 4), np.float32)})
    np.testing.assert_array_equal(out["twice"], np.full((8, 4), 2.0))


@pytest.mark.parametrize("mesh,words", [
    ({"x": 2, "y": 4}, ("axes of other sizes", "'x': 2, 'y': 4", "Plan.on")),
    ({"y": 2, "x": 4}, ("axes in another order",)),
    ({"a": 4, "b": 2}, ("axes of other names", "'a': 4")),
    ({"x": 8}, ("axes of other names",)),
    (es.Mesh({"x": 4, "y": 2}, device_ids=[1, 0, 2, 3, 4, 5, 6, 7]), ("in the order (1, 0, 2",)),
    (Mesh(MESH.devices[::-1], ("x", "y")), ("in the order (0, 1, 2", "in the order (6, 7, 4")),
])
def test_another_mesh(mesh: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(MeshError) as caught:
        es.Plan.from_json(TEXT, mesh=mesh)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize("lowered,words", [
    (lower(double, (8, 8)), ("inputs", "tensor<8x8xf32>", "tensor<8x4xf32>")),
    (lower(double, (8, 4), axis="y"), ("output shardings",)),
    (lower(lambda v: 3 * v, (8, 4)), ("op 0", "constant", "value")),
    (lower(lambda v: 2 + v, (8, 4)), ("op 2", "is add", "multiply")),
    (lower(lambda v: 2 * v + 1, (8, 4)), ("op",)),
    (lower(lambda v: 2 * jnp.sum(v, 0, keepdims=True) + 0 * v, (8, 4)), ("op",)),
])
def test_another_program(lowered: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(ProgramError, match="of another program") as caught:
        es.Plan.from_json(TEXT, program=lowered)
    assert all(word in str(caught.value) for word in words), caught.value
    assert program_fingerprint(es.load(lowered)) != program_fingerprint(PLAN.program)


def test_a_program_on_another_mesh() -> None:
    turned = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("x", "y"))
    with pytest.raises(MeshError, match="other sizes"):
        PLAN.require(program=lower(double, (8, 4), mesh=turned))


def test_other_versions() -> None:
    for name in ("eggshard", "jax"):
        data = opened(PLAN_TEXT, TEXT)
        data["versions"][name] = "0.0.1"
        with pytest.raises(ProgramError, match=rf"{name} 0\.0\.1, and .* is installed"):
            es.Plan.from_json(sealed(PLAN_TEXT, data))


def test_patches_read_each_others_plans() -> None:
    data = opened(PLAN_TEXT, TEXT)
    data["versions"]["eggshard"] = f"{es.__version__.rpartition('.')[0]}.99"
    assert es.Plan.from_json(sealed(PLAN_TEXT, data)).steps == PLAN.steps


def test_other_formats() -> None:
    """Plans of formats 1 and 2, which held no digest, are refused."""
    data = json.loads(TEXT)
    for old in (1, 2):
        data["eggshard plan"] = old
        with pytest.raises(ProgramError, match=f"format {old}, and this is format 3; write the plan"):
            es.Plan.from_json(json.dumps(data))
    del data["eggshard plan"]
    with pytest.raises(ProgramError, match="no plan of eggshard"):
        es.Plan.from_json(json.dumps(data))


def _altered(value: Any) -> Iterator[Any]:
    """Every copy of a JSON value in which one leaf is another one, or one entry is missing."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield {k: v for k, v in value.items() if k != key}
            yield from ({**value, key: other} for other in _altered(inner))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield value[:i] + value[i + 1 :]
            yield from ([*value[:i], other, *value[i + 1 :]] for other in _altered(inner))
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, (int, float)):
        yield value + 1
    else:
        yield f"{value} "


@pytest.mark.parametrize("reasons", [False, True])
def test_whatever_is_altered_is_refused(reasons: bool) -> None:
    seen = 0
    for other in _altered(json.loads(PLAN.to_json(reasons=reasons))):
        with pytest.raises(ProgramError, match="altered|format"):
            es.Plan.from_json(json.dumps(other))
        seen += 1
    assert seen > 150


def test_text_laid_out_anew_is_the_same_plan() -> None:
    again = json.dumps(json.loads(TEXT), indent=2, sort_keys=True)
    assert es.Plan.from_json(again) == es.Plan.from_json(TEXT)


@pytest.mark.parametrize("depth", [2_000, 200_000])
def test_deep_json_is_refused(depth: int) -> None:
    nest = "[" * depth + "]" * depth
    for text in (nest, f'{{"eggshard plan": 3, "digest": "", "program": {nest}}}'):
        with pytest.raises(ProgramError):
            es.Plan.from_json(text)


def test_the_version_of_jax_matters_where_its_text_is_kept() -> None:
    def called_back(v: Any) -> Any:
        return jax.pure_callback(lambda a: a, jax.ShapeDtypeStruct(v.shape, v.dtype), v)

    assert "jax" not in json.loads(TEXT)["versions"]
    lowered = lower(called_back, (8, 4))
    text = es.optimize(lowered, cost_model=WireBytes()).to_json()
    assert json.loads(text)["versions"]["jax"] == jax.__version__
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    np.testing.assert_array_equal(es.Plan.from_json(text, program=lowered).to_jax()(x), x)
    with pytest.raises(EggshardError, match="callbacks are not at hand"):
        es.Plan.from_json(text).to_jax()(x)


def test_fingerprints_are_of_what_is_computed() -> None:
    again = es.optimize(lower(lambda renamed: 2 * renamed, (8, 4)), cost_model=WireBytes())
    assert program_fingerprint(again.program) == program_fingerprint(PLAN.program)
    assert plan_fingerprint(again) == plan_fingerprint(PLAN)
    named = replace(PLAN.program, name="other", input_names=("a",), text=None)
    assert program_fingerprint(named) == program_fingerprint(PLAN.program)
    other = es.optimize(lower(double, (8, 4), axis=""), cost_model=WireBytes())
    assert plan_fingerprint(other) != plan_fingerprint(PLAN)


def test_plans_are_read_from_files_and_are_no_programs(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(TEXT)
    assert es.Plan.from_json(path).steps == PLAN.steps
    for given in (path, TEXT):
        with pytest.raises(ProgramError, match=r"a plan as JSON and no program; Plan.from_json reads it"):
            es.optimize(given)
