"""The report's file: whole, small, and quiet. What it does in a browser is in `test_page_in_browser`."""

from __future__ import annotations

import base64
import json
import re
import zlib
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from tests.report.samples import chain, long_plan, mlp, propagation

import eggshard
from eggshard.api import Plan
from eggshard.report.page_data import PageData
from eggshard.report.page_file import SCRIPTS, page


def data_in(text: str) -> dict[str, Any]:
    (coded,) = re.findall(r'id="data">([^<]*)</script>', text)
    found: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(coded)))
    return found


def test_a_page_holds_the_plan() -> None:
    plan = chain()
    data = data_in(page(plan))
    assert len(data["steps"]["what"]) == len(plan.steps) and data["totals"]["seconds"] == plan.cost.total
    texts = data["texts"]
    assert [texts[n] for n in data["steps"]["op"]].count("dot_general") == 2
    assert data["compared"]["totals"]["bytes"] == plan.baseline.wire_bytes
    assert len(data["reasons"]["decisions"]) == len(plan.reasons.decisions)
    assert [texts[data["values"][v][3]] for v in data["inputs"]] == ["arg0", "arg1", "arg2"]
    assert [texts[n] for n in data["output_names"]] == ["result0"]
    for rows in ("operands", "results"):
        assert [tuple(row) for row in data["steps"][rows]] == [getattr(step, rows) for step in plan.steps]


def test_a_page_asks_for_nothing() -> None:
    text = page(mlp())
    outside = re.sub(r"<script>.*?</script>", "", text, flags=re.S)
    assert "default-src 'none'" in text
    assert not re.search(r"<link|<img|<iframe|@import|url\(", outside)
    assert not re.search(r"\bsrc=", outside) and "sourceMappingURL" not in text
    names = {name for scripts in SCRIPTS.values() for name in scripts if "vendor" not in name}
    ours = "".join((files("eggshard.report") / "page" / name).read_text() for name in names)
    assert not re.search(r"fetch\(|XMLHttpRequest|importScripts|https?://", ours)
    assert "{{" not in outside


def test_licences_are_in_the_package_and_in_the_page() -> None:
    notice = (files("eggshard.report") / "page" / "NOTICE.txt").read_text()
    for name in SCRIPTS["plan"]:
        assert name in notice or not name.startswith("vendor")
    assert "Mike Bostock" in notice and "Chris Pettitt" in notice
    assert "Permission is hereby granted" in page(mlp())


def test_names_are_text_and_not_markup() -> None:
    plan = mlp()
    from dataclasses import replace

    evil = replace(plan, program=replace(plan.program, name="</script><b>&"))
    text = page(evil)
    assert "<title>eggshard plan of &lt;/script&gt;&lt;b&gt;&amp;</title>" in text
    assert data_in(text)["name"] == "</script><b>&"


def test_long_plans_stay_small() -> None:
    text = page(long_plan())
    assert len(text) < 5 << 20
    assert len(data_in(text)["steps"]["what"]) == 8000


def test_loops_show_what_is_inside() -> None:
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((4,), ("x",), devices=jax.devices()[:4])
    rows = NamedSharding(mesh, PartitionSpec("x", None))

    def loop(a: Any) -> Any:
        return jax.lax.fori_loop(0, 5, lambda i, b: jnp.tanh(b @ b), a)

    a = jax.ShapeDtypeStruct((1024, 1024), jnp.float32, sharding=rows)
    plan = eggshard.optimize(jax.jit(loop, out_shardings=rows).lower(a))
    data = data_in(page(plan))
    (inside,) = data["steps"]["inside"].values()
    ops, addresses = data["steps"]["op"], data["steps"]["address"]
    names = [data["texts"][op] for _, first, count, _, _ in inside for op in ops[first : first + count]]
    (number,) = (i for i, step in enumerate(plan.steps) if step.action.kind == "while")
    assert "dot_general" in names
    assert [(p[0], p[3], addresses[p[1]]) for p in inside] == [
        (f"{number}.condition", 6, f"{number}.condition.0"), (f"{number}.body", 5, f"{number}.body.0")]
    (loop_step,) = (i for i, kind in enumerate(data["steps"]["kind"]) if kind == "control")
    assert any(a.at_least for d in plan.reasons.decisions for a in d.alternatives), "bodies are planned when chosen"
    assert "WHAT ELSE" in plan.explain(loop_step)


def test_groups_cover_every_step_once() -> None:
    for plan in (mlp(), chain(), long_plan(500)):
        groups = PageData(plan).values()["groups"]
        covered = [i for _, start, count, _ in groups for i in range(start, start + count)]
        assert covered == list(range(len(plan.steps)))


def test_a_plan_without_steps_has_a_page() -> None:
    plan = mlp()
    from dataclasses import replace

    empty = replace(plan.device_program, steps=(), outputs=(0,), types=plan.device_program.types[:3],
                    held=plan.device_program.held[:3])
    text = page(Plan(plan.program, empty, plan.input_placements, plan.output_placements, plan.cost_model))
    assert data_in(text)["steps"]["what"] == []


def test_a_propagation_has_a_page(tmp_path: Path) -> None:
    explained = propagation()
    text = explained.report(tmp_path / "propagation.html").read_text()
    data = data_in(text)
    assert [row["sharding"] for row in data["values"]] == [row.sharding for row in explained.values]
    assert [row["kept"] for row in data["conflicts"]] == [
        {axis: list(names) for axis, names in row.kept.items()} for row in explained.conflicts]
    assert [row["bytes"] for row in data["moved"]] == [row.bytes for row in explained.moved]
    assert "default-src 'none'" in text and len(text) < 100_000, "it carries no library that it does not use"
    assert "{{" not in re.sub(r"<script>.*?</script>", "", text, flags=re.S)


def test_a_notebook_shows_a_propagation_as_tables() -> None:
    shown = propagation()._repr_html_()
    assert shown.count("<table>") == 3 and '<th scope="col">decided by</th>' in shown
    assert "data: argument 1 (w)" in shown


@pytest.mark.parametrize("known", [True, False])
def test_a_plan_from_json_has_a_page(known: bool) -> None:
    plan = Plan.from_json(mlp().to_json(reasons=known))
    data = data_in(page(plan))
    assert data["compared"] is None and bool(data["reasons"]["decisions"]) is known
