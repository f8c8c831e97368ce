"""Every table of handlers of actions is complete, and says so where it is not."""

import gc
import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

import eggshard
from eggshard.errors import LoweringError
from eggshard.steps.handlers import TABLES, Handlers, kinds
from eggshard.steps.steps import Action, AllGather, Local

#: Actions that no device program holds, and why.
NO_STEPS = {"Reshard": "it stands for a route between shardings whose collectives are planned later"}


def _modules_with_tables() -> list[str]:
    """All modules in which a table is made; importing them registers it."""
    root = Path(eggshard.__file__).parent
    files = [path for path in root.rglob("*.py") if "Handlers(" in path.read_text("utf-8")]
    files += [path for folder in ("costmodel", "rewrites", "frontends") for path in (root / folder).glob("*.py")
              if "Handlers(" in path.read_text("utf-8") and path not in files]
    names = {".".join(("eggshard", *path.relative_to(root).with_suffix("").parts)) for path in files}
    return sorted(names - {"eggshard.steps.handlers"})


def _tables() -> list[Handlers]:
    for name in _modules_with_tables():
        importlib.import_module(name)
    return TABLES


def _gaps() -> list[tuple[str, str]]:
    """Actions of which a table neither has a handler nor says why not."""
    steps = Path(eggshard.__file__).parent / "steps"
    for path in steps.glob("*.py"):
        importlib.import_module(f"eggshard.steps.{path.stem}")
    return [(table.purpose, kind.__name__)
            for table in _tables() for kind in kinds() if kind.__name__ not in NO_STEPS and not table.covers(kind)]


def test_every_table_knows_every_action():
    assert not _gaps()


def test_what_receives_bytes_issues_messages():
    """An action without messages counts as local, and prices leave its bytes out."""
    silent = [kind.__name__ for kind in kinds() if kind.received is not Action.received
              and kind.messages is Action.messages and kind.__name__ not in NO_STEPS]
    assert not silent


def test_all_tables_are_named_once():
    purposes = [table.purpose for table in _tables()]
    assert len(purposes) == len(set(purposes)) >= len(_modules_with_tables()) > 5


def test_names_of_actions_are_their_own():
    names = [kind.__name__ for kind in kinds()]
    assert len(names) == len(set(names)) and {"AllGather", "Local", "JointExchange", "BoxExchange"} <= set(names)


def test_a_new_action_is_missed_by_every_table():
    @dataclass(frozen=True, slots=True)
    class Planted(Action):
        kind: ClassVar[str] = "planted"

    try:
        assert [kind for kind in kinds() if kind.__name__ == "Planted"] == [Planted]
        tables = _tables()
        assert _gaps() == [(table.purpose, "Planted") for table in tables]
        for table in tables:
            with pytest.raises(LoweringError, match=f"{table.purpose} of Planted .planted.: not known"):
                table(Planted())
            with pytest.raises(LoweringError):
                table.has(Planted())
    finally:
        del Planted
        gc.collect()
    assert not _gaps()


def test_tables_dispatch_on_classes_and_their_bases():
    table: Handlers[str] = Handlers("a test")
    try:
        @table.handles(Action)
        def _(action, sign):
            return f"any{sign}"

        @table.handles(AllGather)
        def _(action, sign):
            return f"gather{sign}"

        table.refuses("it stays", Local)
        assert table(AllGather(()), "!") == "gather!" and table.kinds == (Action, AllGather)
        assert table.has(AllGather(())) and not table.has(Local("add", None, ()))
    finally:
        TABLES.remove(table)


def test_what_a_table_refuses_it_says_why():
    table: Handlers[str] = Handlers("a test")
    try:
        table.refuses("it stays", Local)
        with pytest.raises(LoweringError, match="a test of Local .local.: it stays"):
            table(Local("add", None, ()))
    finally:
        TABLES.remove(table)
