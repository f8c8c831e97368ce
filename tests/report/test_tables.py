from __future__ import annotations

import re
import sys
from collections import Counter
from html import escape
from unittest import mock

import pytest
from rich.table import Table
from tests.report.samples import chain

import eggshard
from eggshard import tables as text_tables
from eggshard.report import tables
from eggshard.selection.portfolio import METHODS

CHAIN = """
sdy.mesh @mesh = <["x"=4]>
func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
    -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>}) {
  %0 = stablehlo.sine %a : tensor<8x8xf32>
  %1 = stablehlo.cosine %0 : tensor<8x8xf32>
  %2 = stablehlo.tanh %1 : tensor<8x8xf32>
  return %2 : tensor<8x8xf32>
}"""


def test_a_long_plan_shows_what_communicates() -> None:
    plan = eggshard.optimize(CHAIN, cost_model="alpha-beta")
    assert len(tables.folded(plan)) == len(plan.steps) == 4
    with mock.patch.object(tables, "LONG", 3):
        rows = tables.folded(plan)
        shown = str(plan)
    assert [i for row in rows for i in row] == list(range(len(plan.steps)))
    alone = [row.start for row in rows if plan.steps[row.start].action.messages]
    assert all(len(row) == 1 for row in rows if row.start in alone) and alone
    assert "3 local steps" in shown and "all-to-all" in shown


def test_lines_above_the_table_are_no_longer_than_a_terminal() -> None:
    b = eggshard.ProgramBuilder(mesh={"replica": 2, "data": 2, "model": 2}, name="a_function_of_a_long_name")
    x = b.input((64, 64), "f32", (("data", "model"), None))
    b.output(b.op("tanh", x), (None, ("model", "replica")))
    plan = eggshard.optimize(b.build())
    lines = tables.headline(plan).splitlines()
    assert len(lines) >= 4 and all(len(line) <= 80 for line in lines)


def test_a_plan_that_a_debugger_shows_is_one_short_line() -> None:
    plan = eggshard.optimize(CHAIN)
    seconds = text_tables.duration(plan.cost.total)
    assert repr(plan) == f"<Plan of main: {len(plan.steps)} steps, {seconds}, {plan.search.method}>"
    assert repr(plan.baseline).endswith(", baseline>")
    assert repr(eggshard.Plan.from_json(plan.to_json())) == repr(plan)


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(width))


def table_of(text: str) -> list[str]:
    """The lines below a plan's table's heading."""
    lines = text.splitlines()
    return lines[next(i for i, line in enumerate(lines) if line.startswith(" step ")) + 1 :]


def test_tables_are_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert text_tables.columns() == 118
    written = str(chain())
    on_a_terminal(monkeypatch, 200)
    assert text_tables.columns() == 200 and str(chain()) == written
    on_a_terminal(monkeypatch, 90)
    for text in (str(chain()), str(chain().diff(chain().baseline))):
        assert max(map(len, text.splitlines())) <= 90
    on_a_terminal(monkeypatch, 20)
    assert text_tables.columns() == 80, "figures would be cut off"


PLACEMENTS = re.compile(r"\([^()]*(?:\([^()]*\)[^()]*)*\)(?:\+\{[^}]*\})?")


@pytest.mark.parametrize("width", [80, 84, 90, 96, 100, 118])
def test_placements_are_not_broken_between_lines(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    whole = Counter(p for step in chain().steps for why in step.why for p in PLACEMENTS.findall(why))
    assert len(whole) >= 3
    on_a_terminal(monkeypatch, width)
    found = Counter(p for line in table_of(str(chain())) for p in PLACEMENTS.findall(line))
    assert found == whole


def test_a_sharding_stays_in_one_piece_where_it_fits() -> None:
    table = Table(box=None, padding=0, show_edge=False)
    table.add_column("why", overflow="fold")
    table.add_row(tables.glued('reshard [{"x"}, {}] to [{"x", "y"}, {}] (of two, that is)'))
    assert tables.render(table, width=20).splitlines() == [
        "why", 'reshard [{"x"}, {}]', 'to [{"x", "y"}, {}]', "(of two, that is)"]


def test_what_methods_came_to_is_explained_where_it_stands() -> None:
    plan = chain()
    assert {"greedy", "cheap"} <= {note.partition(":")[0] for note in plan.search.notes} <= set(tables.METHODS)
    assert set(METHODS) <= set(tables.METHODS)
    text = plan.explain()
    lines = text.partition("\nmethods in turn, in seconds (cost: ")[2].splitlines()[1:]
    assert [line.partition("  (")[0].strip() for line in lines] == list(plan.search.notes)
    assert text.count(tables.METHODS["greedy"]) == text.count(tables.METHODS["cheap"]) == 1
    assert "methods in turn" not in plan.baseline.explain()


@pytest.mark.parametrize(("seconds", "shown"), [
    (0.0, "0 s"), (2.5e-12, "0.0025 ns"), (999.4e-9, "999 ns"), (999.6e-9, "1 us"), (1e-6, "1 us"), (0.9996e-3, "1 ms"),
    (12.34e-3, "12.3 ms"), (0.99951, "1 s"), (250.0, "250 s"),
])
def test_durations_have_three_digits_and_no_exponent(seconds: float, shown: str) -> None:
    assert text_tables.duration(seconds) == shown


def test_results_show_themselves() -> None:
    """In notebooks as their text, and by one line where they stand in something else."""
    plan = eggshard.optimize(CHAIN, cost_model=eggshard.costmodel.AlphaBeta(overlap=1.0))
    shown = [plan.search, plan.schedule, plan.reasons, plan.program, plan.prove(), plan.diff(plan), plan.workspace(),
             plan.workspace().proof(), plan.verify(), eggshard.pareto(CHAIN, points=1)]
    for each in shown:
        assert f"{escape(str(each))}</pre>" in each._repr_html_() and " object at " not in str(each)
        if not isinstance(each, eggshard.Program):  # whose representation tells all of it
            assert len(repr(each)) < 200 and repr(each).startswith(f"<{type(each).__name__}: ")
