"""The only module that talks to egglog; it runs in the worker process.

It knows tables and the rulesets ``load``, ``find``, ``apply`` and ``forget``, not tensors.
`eggshard.egraph.compilation` writes the program. Facts come in as tab-separated files, results go out as integer
arrays. An engine with its schema and rules is made once and kept; each run starts from a pushed copy of it, which is
popped while idle.

Limits: one iteration per call. Before an iteration that could exceed the row limit the state is pushed, and popped
again if it did, so that the last good state remains.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import tempfile
from array import array
from collections.abc import Mapping, Sequence
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any

from eggshard.egraph.outcome import Columns, Outcome, Result
from eggshard.worker import scratch_directory, when_idle

if TYPE_CHECKING:
    import egglog.bindings as bindings
else:
    def _engine_alone() -> Any:
        """``egglog.bindings`` without the rest of its package, which takes ten times as long to import."""
        name = "egglog.bindings"
        package = None if name in sys.modules else find_spec("egglog")
        spec = None if package is None else PathFinder.find_spec(name, package.submodule_search_locations)
        if spec is None or spec.loader is None:
            return importlib.import_module(name)
        module = sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    bindings = _engine_alone()

#: The largest factor by which rows were seen to grow in one iteration; it decides when a copy is pushed first.
GROWTH = 12
#: The most engines, each with a schema and rules of its own, that a worker keeps.
_KEPT_ENGINES = 3

#: relation -> rows of integers.
Tables = Mapping[str, Sequence[Sequence[int]]]


class Engine:
    """An e-graph with a fixed schema and rules, used for one run after the other."""

    def __init__(self, base: tuple[str, ...]):
        self.directory = tempfile.mkdtemp(prefix="eggshard-", dir=scratch_directory())
        self.egraph = bindings.EGraph(fact_directory=self.directory)
        self._parsed: dict[str, Any] = {}
        for text in base:
            self.egraph.run_program(*self.egraph.parse_program(text))
        self._depth = 0
        self.ready = False
        self.reset()

    def reset(self) -> None:
        """Pop the engine back to its state without facts."""
        if self._depth:
            self.run(f"(pop {self._depth})")
        self.run("(push)")
        self._depth = 1
        self.rows = 0
        self.counted: tuple[str, ...] = ()
        self.watching: list[str] = []
        self.matches: dict[str, int] = {}
        self.ready = True

    def run(self, text: str) -> list[Any]:
        """Run a short program; it is parsed once."""
        commands = self._parsed.get(text)
        if commands is None:
            commands = self.egraph.parse_program(text)
            if len(text) < 200:
                self._parsed[text] = commands
        return self.egraph.run_program(*commands)

    def load(self, tables: Tables) -> None:
        """Add rows to relations of integers."""
        names = [name for name, rows in tables.items() if rows]
        for name in names:
            with open(os.path.join(self.directory, name), "w", encoding="ascii") as file:
                file.write("".join("\t".join(map(str, row)) + "\n" for row in tables[name]))
        for name in names:
            self.run(f'(input {name} "{name}")')

    def iterate(self, ruleset: str) -> bool:
        """One iteration of a ruleset; whether it changed anything."""
        report = self.run(f"(run {ruleset} 1)")[0].report
        for rule, count in report.num_matches_per_rule.items():
            if count:
                self.matches[rule] = self.matches.get(rule, 0) + count
        return bool(report.updated)

    def demanded(self, watch: Sequence[str]) -> tuple[int, dict[str, list[tuple[int, ...]]]]:
        """Forget the watched rows and find new ones: how many rows the counted tables have, and the watched rows."""
        if self.watching:
            self.iterate("forget")
        self.iterate("find")
        sizes = self.sizes()
        self.watching = [name for name in watch if sizes.get(name)]
        return sum(sizes.get(name, 0) for name in self.counted), self.integers(self.watching)

    def guard(self) -> None:
        self.run("(push)")
        self._depth += 1

    def undo(self) -> None:
        self.run("(pop)")
        self._depth -= 1

    def sizes(self) -> dict[str, int]:
        """Rows per table."""
        return dict(self.run("(print-size)")[0].sizes)

    def integers(self, names: Sequence[str]) -> dict[str, list[tuple[int, ...]]]:
        """The rows of relations of integers, sorted."""
        if not names:
            return {}
        functions, value = self.egraph.freeze().functions, self.egraph.value_to_i64
        return {
            name: sorted(tuple(value(v) for v in row.inputs) for row in functions[name].rows)
            for name in names if name in functions and functions[name].rows
        }

    def tables(self, names: Sequence[str], sort: str) -> dict[str, Columns]:
        """Columns of functions, inputs and output; values of ``sort`` become dense ids in order of appearance.

        The first table's rows are put in order of their first column before ids are given.
        """
        functions, value = self.egraph.freeze().functions, self.egraph.value_to_i64
        ids: dict[Any, int] = {}
        out = {}
        for i, name in enumerate(names):
            function = functions.get(name)
            if function is None or not function.rows:
                continue
            rows = list(function.rows)
            if i == 0:
                rows.sort(key=lambda row: value(row.inputs[0]))
            out[name] = [
                array("q", [ids.setdefault(v, len(ids)) if kind == sort else value(v) for v in column])
                for kind, column in zip(
                    (*function.input_sorts, function.output_sort),
                    (*zip(*(row.inputs for row in rows), strict=True), [row.output for row in rows]), strict=True
                )
                if kind in (sort, "i64")
            ]
        return out

    def close(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


_engines: dict[tuple[str, ...], Engine] = {}
_current: Engine | None = None


def prepare(base: tuple[str, ...]) -> None:
    """Make the engine of a base program ahead of its first run."""
    _engine(base)


def begin(
    base: tuple[str, ...], program: str, tables: Tables, watch: Sequence[str], counted: Sequence[str]
) -> Outcome:
    """Start a run: declare ``program``, add facts, load them by one iteration of ruleset ``load``, then of ``find``.

    watch: relations whose rows are handed out and forgotten after every iteration. counted: tables that count as rows.
    """
    global _current
    _current = engine = _engine(base)
    if not engine.ready:
        engine.reset()
    engine.ready = False
    if program:
        engine.run(program)
    engine.counted = tuple(counted)
    engine.load(tables)
    engine.iterate("load")
    engine.rows, watched = engine.demanded(watch)
    return Outcome(True, engine.rows, False, watched)


def step(
    tables: Tables, watch: Sequence[str], max_rows: int, names: Sequence[str] = (), sort: str = ""
) -> Outcome:
    """One iteration: add facts, run ``apply``, forget the watched rows, run ``find``, hand out the watched rows.

    If more than ``max_rows`` rows would result, the iteration is undone. names, sort: if this was the last iteration
    of use, the run is finished as by `finish`, for the outcome's result.
    """
    engine = _running()
    engine.load(tables)
    guarded = engine.rows * GROWTH > max_rows
    if guarded:
        engine.guard()
    changed = engine.iterate("apply")
    rows, watched = engine.demanded(watch)
    if rows > max_rows and guarded:
        engine.undo()
        return Outcome(False, engine.rows, True, {})
    engine.rows = rows
    last = names and not changed and not watched
    return Outcome(changed, rows, False, watched, finish(names, sort) if last else None)


def finish(names: Sequence[str], sort: str) -> Result:
    """The tables of the run (`Engine.tables`), and the matches per rule. The engine is reset while idle."""
    engine = _running()
    answer = engine.tables(names, sort), engine.matches
    when_idle(engine.reset)
    return answer


def _engine(base: tuple[str, ...]) -> Engine:
    engine = _engines.pop(base, None)
    if engine is None:
        engine = Engine(base)
        while len(_engines) >= _KEPT_ENGINES:
            _engines.pop(next(iter(_engines))).close()
    _engines[base] = engine
    return engine


def _running() -> Engine:
    if _current is None:
        raise RuntimeError("no run was begun in this worker")
    return _current
