"""Contract tests: what eggshard relies on in the pinned egglog, run in this process."""

import pytest

pytest.importorskip("egglog")

import egglog.bindings as bindings  # noqa: E402

from eggshard.egraph import adapter  # noqa: E402
from eggshard.egraph.adapter import Engine  # noqa: E402

BASE = (
    "(sort T) (ruleset grow) (ruleset load) (relation in_leaf (i64)) (constructor V (i64) T :unextractable)"
    "(constructor Leaf (i64) T) (constructor Pair (T T) T) (function by (T) i64 :merge old)",
    "(rule ((in_leaf i)) ((union (V i) (Leaf i))) :ruleset load)",
    '(rule ((= a (Leaf i)) (= b (Leaf j))) ((Pair a b)) :ruleset grow :name "pairs")',
)


@pytest.fixture
def engine():
    engine = Engine(BASE)
    yield engine
    engine.close()


def rows_of(columns):
    return list(zip(*columns, strict=True))


def test_facts_come_in_as_tables_and_go_out_as_integers(engine):
    engine.load({"in_leaf": [(5,), (7,)]})
    engine.iterate("load")
    tables = engine.tables(["V", "Leaf", "Pair"], "T")
    assert rows_of(tables["V"]) == [(5, 0), (7, 1)]
    assert rows_of(tables["Leaf"]) == [(5, 0), (7, 1)]
    assert "Pair" not in tables
    assert engine.integers(["in_leaf"]) == {"in_leaf": [(5,), (7,)]}


def test_an_iteration_reports_changes_and_matches(engine):
    engine.load({"in_leaf": [(i,) for i in range(4)]})
    engine.iterate("load")
    assert engine.iterate("grow") and engine.matches["pairs"] == 16
    assert not engine.iterate("grow")


def test_undo_restores_the_state_and_its_rules_still_fire(engine):
    engine.load({"in_leaf": [(i,) for i in range(4)]})
    engine.iterate("load")
    engine.guard()
    engine.iterate("grow")
    assert engine.sizes()["Pair"] == 16
    engine.undo()
    assert engine.sizes()["Pair"] == 0
    engine.iterate("grow")
    assert engine.sizes()["Pair"] == 16


def test_reset_forgets_facts_and_numbers_classes_alike(engine):
    def run():
        engine.load({"in_leaf": [(3,), (1,), (2,)]})
        engine.iterate("load")
        engine.iterate("grow")
        return {name: rows_of(table) for name, table in engine.tables(["V", "Leaf", "Pair"], "T").items()}

    first = run()
    engine.reset()
    assert engine.integers(["in_leaf"]) == {}
    assert run() == first


def test_merge_old_keeps_the_first_value():
    egraph = bindings.EGraph()
    run = lambda text: egraph.run_program(*egraph.parse_program(text))  # noqa: E731
    run("(function f (i64) i64 :merge old) (set (f 1) 10) (set (f 1) 20)")
    (row,) = egraph.freeze().functions["f"].rows
    assert egraph.value_to_i64(row.output) == 10


def test_congruent_keys_of_a_function_merge_after_a_union():
    egraph = bindings.EGraph()
    run = lambda text: egraph.run_program(*egraph.parse_program(text))  # noqa: E731
    run("(sort T) (constructor A (i64) T) (function by (T) i64 :merge old) (set (by (A 1)) 1) (set (by (A 2)) 2)")
    run("(union (A 1) (A 2))")
    assert len(egraph.freeze().functions["by"].rows) == 1


def test_deleted_relation_rows_are_gone_and_can_come_back():
    engine = Engine(
        (
            "(relation seen (i64)) (relation out (i64)) (ruleset find) (ruleset forget)",
            "(rule ((seen x)) ((out x)) :ruleset find) (rule ((out x)) ((delete (out x))) :ruleset forget)",
        )
    )
    engine.load({"seen": [(1,)]})
    engine.iterate("find")
    assert engine.integers(["out"]) == {"out": [(1,)]}
    engine.iterate("forget")
    assert engine.integers(["out"]) == {}
    engine.load({"seen": [(2,)]})
    engine.iterate("find")
    assert engine.integers(["out"]) == {"out": [(2,)]}
    engine.close()


def test_an_unknown_ruleset_panics_with_a_base_exception(engine):
    with pytest.raises(BaseException) as error:  # noqa: B017, PT011
        engine.iterate("no_such_ruleset")
    assert not isinstance(error.value, Exception)


def test_the_last_iteration_hands_out_the_result():
    base = (
        "(sort T) (constructor V (i64) T :unextractable) (constructor Leaf (i64) T) (relation in_leaf (i64))"
        "(relation seen (i64)) (ruleset load) (ruleset find) (ruleset apply) (ruleset forget)"
        "(rule ((in_leaf x)) ((union (V x) (Leaf x))) :ruleset load)"
        "(rule ((= e (Leaf x))) ((seen x)) :ruleset find) (rule ((seen x)) ((delete (seen x))) :ruleset forget)"
        "(rule ((= e (Leaf 1))) ((Leaf 2)) :ruleset apply)",
    )
    first = adapter.begin(base, "", {"in_leaf": [(1,)]}, ("seen",), ("Leaf",))
    assert first.watched == {"seen": [(1,)]} and first.rows == 1 and first.result is None
    names = ("V", "Leaf")
    grown = adapter.step({}, ("seen",), 100, names, "T")
    assert grown.watched == {"seen": [(2,)]} and grown.rows == 2 and grown.result is None
    last = adapter.step({}, ("seen",), 100, names, "T")
    assert not last.changed and last.watched == {} and last.result is not None
    assert rows_of(last.result[0]["Leaf"]) == [(1, 0), (2, 1)]
