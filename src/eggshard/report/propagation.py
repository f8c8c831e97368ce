"""Propagation explained: who decided the sharding of every value, as tables, in notebooks, and as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from eggshard.extras import named_extras
from eggshard.shardy.explanation.propagated import Conflict, Decided, Moved, propagated
from eggshard.tables import Shown, render, size


class _Table(NamedTuple):
    """A table: a line above it, the names of the columns, and the rows."""

    head: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, repr=False)
class Propagation(Shown):
    """Every value of a program with who decided its sharding, and the conflicts and reshards where decisions differ.

    An axis was decided by an argument, a result or a constraint that states it, from which it was propagated. name: of
    the program.
    """

    name: str
    values: tuple[Decided, ...]
    conflicts: tuple[Conflict, ...]
    moved: tuple[Moved, ...]

    def of(self, text: str) -> Propagation:
        """Only the values, conflicts and reshards whose op or line has this text in it."""
        return replace(
            self, values=tuple(row for row in self.values if text in f"{row.value} {row.where}"),
            conflicts=tuple(row for row in self.conflicts if text in f"{row.op} {row.where}"),
            moved=tuple(row for row in self.moved if text in f"{row.op} {row.where}"))

    def report(self, path: str | Path) -> Path:
        """Write one HTML page that needs no network: values by line, conflicts, reshards, and what each one decided.

        Returns the path.
        """
        from eggshard.report.page_file import page_of, write_page

        rows = {field.name: [row._asdict() for row in getattr(self, field.name)] for field in fields(self)
                if field.name != "name"}
        text = page_of("propagation", f"eggshard propagation of {self.name}", {"name": self.name, **rows})
        return write_page(text, path)

    def __str__(self) -> str:
        from rich.table import Table

        shown: list[Any] = []
        for each in self._tables():
            table = Table(*each.columns, box=None, pad_edge=False)
            for row in each.rows:
                table.add_row(*row)
            shown += [each.head, *([table] if each.rows else [])]
        return render(*shown)

    def _repr_html_(self) -> str:
        from eggshard.report.notebook import table_html

        more = "explain_propagation(...).report('propagation.html') shows all"
        return "".join(table_html(each.head, [(name, "left") for name in each.columns], each.rows, more)
                       for each in self._tables())

    def _tables(self) -> tuple[_Table, ...]:
        values = []
        for (type_, sharding, axes, where), group in groupby(self.values, lambda row: row[1:]):
            names = [row.value for row in group]
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            decided = _by({axis: (who,) for axis, who in axes.items()}) or "nobody"
            values.append((names[0] + more, type_, sharding, decided, where))
        conflicts = [
            (row.op, row.what, _by(row.kept) or "the op itself", _by(row.rejected) or "whole", size(row.bytes),
             row.where) for row in self.conflicts]
        moved = [(row.op, row.what, row.had, row.wanted, size(row.bytes), row.where) for row in self.moved]
        differ = "where an op computes with one decision's axes and not with another's"
        return (
            _Table(_count(len(self.values), "value"), ("value", "type", "sharding", "decided by", "line"), values),
            _Table(_count(len(conflicts), "conflict", differ),
                   ("op", "at", "computes with", "not with", "received", "line"), conflicts),
            _Table(_count(len(moved), "reshard", "where decisions differ"),
                   ("op", "moves", "from", "to", "received", "line"), moved),
        )


@named_extras()
def explain_propagation(program: Any) -> Propagation:
    """Say who decided the sharding of every value, which decisions conflict, and which reshards follow.

    program: as `optimize` takes it; of a ``jax.stages.Lowered`` the author's lines are known. It is propagated as
    Shardy does, and its reshards are those of Shardy's decision for each op. ProgramError and ShardingError for bad
    input.
    """
    return Propagation(*propagated(program))


def _by(axes: Mapping[str, tuple[str, ...]]) -> str:
    """The axes that each one decided."""
    by: dict[str, list[str]] = {}
    for axis, names in axes.items():
        by.setdefault(" and ".join(names) or "nobody", []).append(axis)
    return "; ".join(f"{', '.join(which)}: {who}" for who, which in by.items())


def _count(count: int, name: str, where: str = "") -> str:
    """The line above a table."""
    said = f"{count or 'no'} {name}{'s' if count != 1 else ''}"
    return f"{said} {where}:" if count and where else said + ":" * (count > 0)
