"""`guard` over the programs of the benches: what it runs has no more modelled time than XLA's own program.

Every program is planned and compiled on its own mesh, with every axis split into axes of two, or beside one or two axes
that nobody uses, so that meshes have one to five axes. Bytes and modelled time are of compiled programs. Where the plan
is worse the guard runs XLA's program, and says in what it was.
"""

from __future__ import annotations

import importlib
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.peers import kib
from bench.programs import BenchProgram, seconds

#: Families of programs; besides, the programs of which seconds are measured, and as many others drawn by a seed.
FAMILIES = ("reshard", "dense", "stencil", "padslice", "indexing", "models", "training")
DRAWN = 8
#: The forms of a program: by how many unused axes it gets, and whether its own are split.
FORMS: tuple[tuple[str, bool, int], ...] = (
    ("as it is", False, 0), ("split", True, 0), ("beside one", False, 1), ("split, beside one", True, 1),
    ("split, beside two", True, 2),
)


def _twos(name: str, size: int) -> list[tuple[str, int]]:
    """An axis as axes of two and what is left of its size, major to minor; itself where it is of no more than two."""
    sizes = []
    while size > 2 and size % 2 == 0:
        sizes.append(2)
        size //= 2
    return [(f"{name}{i}", n) for i, n in enumerate([*sizes, size])] if sizes else [(name, size)]


@dataclass(frozen=True)
class Row:
    """One program in one form. bytes, seconds: of the plan, of XLA's program; worse: in what the guard finds the plan
    worse; error: why there is no comparison."""

    name: str
    axes: dict[str, int]
    bytes: tuple[float, float] = (0.0, 0.0)
    seconds: tuple[float, float] = (0.0, 0.0)
    worse: tuple[str, ...] = ()
    error: str = ""

    @property
    def failure(self) -> str:
        """What is wrong with what runs: more modelled time than XLA's, beyond what the guard allows, or more bytes
        for no less of it."""
        if self.error or self.worse:
            return self.error
        (ours, theirs), (took, takes) = self.bytes, self.seconds
        more = "more bytes for no less time" if ours > theirs + 0.5 and took >= takes else ""
        return more or ("more modelled time" if took > 1.02 * takes else "")


def split(text: str) -> str | None:
    """The module on a mesh whose axes are split into axes of two; None where it names parts of axes, or has none to
    split."""
    found = re.search(r"sdy\.mesh @\w+ = <\[(.*?)\]", text)
    if found is None or re.search(r'"\w+":\(', text) or "manual" in text:
        return None
    axes = {name: int(size) for name, size in re.findall(r'"(\w+)"=(\d+)', found[1])}
    parts = {name: _twos(name, size) for name, size in axes.items()}
    if all(len(of) == 1 for of in parts.values()):
        return None
    mesh = ", ".join(f'"{part}"={size}' for of in parts.values() for part, size in of)

    def renamed(match: re.Match[str]) -> str:
        return ", ".join(f'"{part}"' for part, _ in parts[match[1]])

    # `{"x"}` in shardings names axes; the mesh's own attributes have them with sizes.
    head, tail = text[:found.start(1)], text[found.end(1):]
    names = "|".join(map(re.escape, axes))
    return head + mesh + re.sub(r"{[^{}]*}", lambda m: re.sub(rf'"({names})"(?! *=)', renamed, m[0]), tail)


def beside(text: str, count: int) -> str | None:
    """The module on a mesh with so many axes of two more, which nothing is sharded over."""
    found = re.search(r"sdy\.mesh @\w+ = <\[(.*?)\]", text)
    partitions = re.search(r"mhlo\.num_partitions = (\d+)", text)
    if found is None or partitions is None or "manual" in text:
        return None
    more = "".join(f', "unused{i}"=2' for i in range(count))
    text = text[:found.end(1)] + more + text[found.end(1):]
    return text.replace(partitions[0], f"mhlo.num_partitions = {int(partitions[1]) << count}")


def form(text: str, splits: bool, unused: int) -> str | None:
    """A program's text in one of the `FORMS`; None where it has none."""
    made = split(text) if splits else text
    return made if made is None or not unused else beside(made, unused)


def measure(name: str, text: str) -> Row:
    """Plan a module, compile it and XLA's own program, and compare as the guard does."""
    import eggshard as es

    axes = dict(es.load(text).mesh.axes)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", es.EggshardWarning)
            plan = es.optimize(text, limits=es.Limits(proof=0))
        found = plan.compare_with_xla()
    except (es.EggshardError, es.EggshardWarning) as error:
        return Row(name, axes, error=f"{type(error).__name__}: {error}")
    return Row(name, axes, (found.plan.wire_bytes, found.xla.wire_bytes),
               (found.plan.modelled_seconds, found.xla.modelled_seconds), found.excesses(es.Guard()))


def _programs(everything: bool, seed: int) -> Iterator[tuple[str, BenchProgram]]:
    """Families and their programs."""
    for family in FAMILIES:
        for program in importlib.import_module(f"bench.programs.{family}").PROGRAMS:
            if everything or not program.extra:
                yield family, program
    for kind, names in (*seconds.names().items(), ("drawn", seconds.variants(seed, DRAWN))):
        for name in names:
            yield f"{kind}, timed", seconds.program(name)


def cases(only: str, everything: bool, seed: int) -> Iterator[tuple[str, str]]:
    """Names and texts: each program in one form, the next program in the next one; or in every form."""
    number = 0
    for family, program in _programs(everything, seed):
        if only not in f"{family}: {program.name}":
            continue
        text: str = program.text or program.lower().as_text()
        forms = [(label, made) for label, *how in FORMS if (made := form(text, *how)) is not None]
        for label, made in forms if everything else [forms[number % len(forms)]]:
            yield f"{family}: {program.name}, {label}", made
        number += 1


def run(console: Console, only: str = "", everything: bool = False, seed: int = 0) -> bool:
    """Print programs that the guard takes from the planner, and those that are worse in spite of it; true if there are
    none of these."""
    rows = []
    for name, text in cases(only, everything, seed):
        rows.append(measure(name, text))
        print(f"{name}: {'; '.join(rows[-1].worse) or rows[-1].failure or 'the plan'}", file=sys.stderr)
    table = Table(title="guarded programs that do not run the plan, or are worse than XLA's: KiB and us per device",
                  pad_edge=False)
    for column in ("program", "axes", "plan", "XLA", "plan us", "XLA us", "runs", "why"):
        table.add_column(column, justify="left" if column in ("program", "axes", "runs", "why") else "right")
    for row in rows:
        if row.worse or row.failure:
            table.add_row(escape(row.name), "x".join(map(str, row.axes.values())), *map(kib, row.bytes),
                          *(f"{1e6 * s:.4g}" for s in row.seconds), "XLA's" if row.worse else "plan",
                          escape("; ".join(row.worse) or row.failure)[:90])
    console.print(table)
    for count in sorted({len(row.axes) for row in rows}):
        some = [row for row in rows if len(row.axes) == count]
        console.print(
            f"{count} axes: {len(some)} programs; fewer bytes than XLA's on "
            f"{sum(r.bytes[0] < r.bytes[1] - 0.5 for r in some)}, less modelled time on "
            f"{sum(r.seconds[0] < r.seconds[1] * (1 - 1e-9) for r in some)}; XLA's runs on "
            f"{sum(bool(r.worse) for r in some)}; worse in spite of the guard: {sum(bool(r.failure) for r in some)}")
    return not any(row.failure for row in rows)
