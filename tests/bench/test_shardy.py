"""The comparison with jaxlib's passes tells agreement from difference, and fewer bytes from more."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench import shardy
from bench.shardy_rows import EXAMPLES, Row, example, rows
from rich.console import Console
from tests.shardy.peer import run_peer

from eggshard.shardy.catalogue import PASSES, read_steps

STATED = (dict(stated=1.0, open=1.0),)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shardy, "MODULES", 3)
    monkeypatch.setattr(shardy, "DRAWN", 3)


def outcomes(row: Row) -> dict[str, int]:
    return dict(shardy.compare(row, seed=1).counts)


def test_equal_and_different_text() -> None:
    assert outcomes(Row("close-shardings", STATED)) == {"agreeing": 3}
    assert outcomes(Row("close-shardings", STATED, peer="sdy-inline-meshes")) == {"differing": 3}
    assert outcomes(Row("close-shardings", STATED, "shardings", peer="sdy-inline-meshes")) == {"differing": 3}


def test_failures_of_either_side() -> None:
    several = (dict(functions=1, main="other"),)
    dropped = "drop-sharding-and-mesh"
    assert outcomes(Row("propagate-to-func-results", several, peer="sdy-close-shardings")) == {"ours failed": 3}
    assert outcomes(Row("close-shardings", several, peer="sdy-no-such-pass")) == {"peer failed": 3}
    constrained = (dict(constraints=True, families=("constraint",)),)
    assert outcomes(Row(dropped, constrained)) == {"both refuse": 3}


GATHERED = "func.func(sdy-reshard-to-collectives)"


def test_bytes_of_either_side() -> None:
    moved = (dict(families=("reshard",), stated=1.0, open=0.0, sharded=0.9, all_used=True, mesh={"x": 2}, length=12),)
    done = (f"jaxlib:{GATHERED}", GATHERED)
    same = shardy.compare(Row("close-shardings", moved, "bytes", after=done), 0)
    assert same.counts == {"agreeing": 3} and same.ours == same.theirs > 0
    fewer = shardy.compare(Row("close-shardings", moved, "bytes", after=("", GATHERED)), 0)
    assert fewer.counts == {"fewer": 3} and fewer.ours == 0
    more = shardy.compare(Row("close-shardings", moved, "bytes", after=(f"jaxlib:{GATHERED}", "")), 0)
    assert more.counts == {"more": 3} and "bytes, jaxlib's 0" in more.examples["more"]


UNEVEN = """
  sdy.mesh @mesh = <["x"=4]>
  func.func @main(%a: tensor<6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x":(1)2}]>}) -> tensor<6xf32> {
    %0 = sdy.reshard %a <@mesh, [{"x"}]> : tensor<6xf32>
    %1 = stablehlo.negate %0 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}]>]>} : tensor<6xf32>
    %2 = sdy.reshard %1 <@mesh, [{}]> : tensor<6xf32>
    return %2 : tensor<6xf32>
  }
"""


def test_a_rival_that_computes_something_else_has_failed() -> None:
    """jaxlib pads uneven shards and slices them where they lie: rows of other shards are zeros, without any bytes."""
    class Uneven(Row):
        def module(self, seed: int) -> str:
            return UNEVEN

    even, local = ("func.func(sdy-pad-for-divisibility)", "sdy-convert-global-to-local")
    row = Uneven("reshard-to-collectives", (), "bytes", "", "", (
        "pad-for-divisibility,convert-global-to-local", f"{even},{local}"), runs=True)
    assert outcomes(row) == {"peer failed": 3}
    assert outcomes(replace(row, runs=False)) == {"more": 3}


def test_every_pass_of_jaxlibs_is_in_a_row() -> None:
    passes = [row.passes for row in rows() if not row.passes.startswith("pipeline")]
    compared = {step.pass_.name for text in passes for step in read_steps(text)}
    assert {name for name, found in PASSES.items() if found.on} <= compared


def test_rows_are_of_passes_that_there_are() -> None:
    names = [row.name for row in shardy.chosen()]
    assert "close-shardings" in names and len(names) == len(set(names)) <= len(list(rows()))
    assert "constant-or-scalar-merger" in [row.name for row in shardy.chosen("constant")]


def test_the_table_and_the_records() -> None:
    console = Console(record=True, width=190)
    good, records = shardy.run(console, seed=2, only="inline-meshes")
    assert good and records[0]["pass"] == "inline-meshes" and records[0]["agreeing"] == records[0]["modules"] == 3
    assert "inline-meshes" in console.export_text()


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_modules(name: str) -> None:
    assert not run_peer(example(EXAMPLES[name][1]), shardy.PROPAGATE).failure
