"""The benchmark of layouts, with planners that stand in for the real one."""

from __future__ import annotations

import io
import random

import pytest

pytest.importorskip("triton")

from bench import triton as bench  # noqa: E402
from bench.kernel_corpus import snapshots  # noqa: E402
from bench.programs.kernels import PROGRAMS, TARGETS, variants  # noqa: E402
from bench.triton_rows import Figures, Row, measure  # noqa: E402
from rich.console import Console  # noqa: E402
from tests.bench import layout_planners  # noqa: E402


def test_names_differ_and_every_kernel_has_choices() -> None:
    names = [p.name for p in PROGRAMS]
    assert len(set(names)) == len(names) >= 12
    for program in PROGRAMS:
        assert program.choices and set(program.choices) <= {*program.constants, "dtype", "num_warps", "num_stages"}
        assert program.drawn(random.Random(0)).function is program.function


def test_variants_are_drawn_from_the_seed() -> None:
    assert variants(3, 40) == variants(3, 40)
    assert variants(3, 40) != variants(4, 40)


@pytest.mark.slow
def test_every_kernel_and_variant_passes_tritons_pipeline() -> None:
    for program in [*PROGRAMS, *variants(0, 2 * len(PROGRAMS))]:
        for target in TARGETS:
            assert len(snapshots(program, target).removals) == 4


def test_rows_compare_with_triton() -> None:
    row = measure(next(p for p in PROGRAMS if p.name == "transpose_gate"), "sm80", layout_planners.unchanged)
    assert not row.failures and set(row.figures) == {"triton", "after", "replace"}
    assert row.figures["triton"].code == row.figures["after"].code
    # All four removals left out, which is dearer, then all but the first; each time what comes out is planned, too.
    # After them there is a cautious plan, which finds nothing, and one at usual prices.
    assert row.figures["replace"].plans == 5 + 4 and row.figures["after"].plans == 2
    assert row.figures["after"].judged == row.figures["replace"].judged == "equal"
    assert row.compile_seconds > 0
    assert bench.compare(row, "after", "cost") == "equal"
    assert bench.compare(row, "replace", "cost") == "equal"
    assert Row.of(row.json()) == row
    row.figures["replace"].cost *= 1.01
    row.figures["replace"].conversions += 1
    assert bench.compare(row, "replace", "cost") == bench.compare(row, "replace", "conversions") == "worse"


def test_more_registers_are_worse_from_a_twentieth_on() -> None:
    def row(ours: int) -> Row:
        return Row("", "", {way: Figures(0, 0, {"registers": n}) for way, n in (("triton", 100), ("after", ours))})

    found = [bench.compare(row(n), "after", "registers") for n in (94, 97, 100, 105, 106)]
    assert found == ["better", "better", "equal", "equal", "worse"]
    assert bench.compare(row(1), "replace", "registers") is None


def test_failures_are_shown_and_counted() -> None:
    row = measure(next(p for p in PROGRAMS if p.name == "softmax"), "sm80", layout_planners.failing)
    assert set(row.failures) == {"after", "replace"} and "ValueError: no plan" in row.failures["after"]
    lines, good = bench.verdict([row])
    assert not good and lines[0].startswith("FAILED softmax sm80, after") and lines[-1] == "failed: 1"


@pytest.mark.slow
def test_a_planner_that_ends_its_process_is_a_failure() -> None:
    out = io.StringIO()
    console = Console(file=out, width=200)
    good, records = bench.run(console, only="softmax sm80", planner=f"{layout_planners.__name__}:ending")
    assert not good and len(records) == 1
    assert "SIGKILL" in records[0]["failures"]["after"] and records[0]["figures"]["triton"]["code"]["barriers"] > 0
    assert "FAILED softmax sm80, replace" in out.getvalue()
