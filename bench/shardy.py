"""Shardy's passes as we have them, against those that jaxlib registers, on random modules.

Clean-up passes are to leave the same text, propagation the same shardings. Passes that decide are compared by the
bytes on the wire of the collectives that their results come to, by ring formulas of local shapes. So are all reshards
of a matrix by whole axes. Three programs are compiled as well: what they communicate then is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from tests.shardy.peer import peer_text, run_peer
from tests.shardy.running import assert_runs_equal

from bench import shardy_pairs
from bench.lit.judging import shardings
from bench.shardy_rows import EXAMPLES, PROPAGATE, Row, example, rows
from eggshard import shardy
from eggshard.errors import EggshardError, ProgramError
from eggshard.shardy.catalogue import PASSES, read_steps
from eggshard.shardy.module import parsed
from eggshard.shardy.wire_bytes import module_bytes

MODULES = 50
#: Modules are drawn until there are enough that jaxlib's passes take, those before the compared one and itself.
DRAWN = 3 * MODULES
#: Outcomes, in the order of the table's columns. Those of `FAILURES` are to be none.
OUTCOMES = ("agreeing", "fewer", "more", "differing", "peer failed", "both refuse", "ours failed")
FAILURES = ("more", "differing", "ours failed")
#: Before passes of jaxlib's that finish a result of ours; before a pipeline's name.
JAXLIB, PIPELINE = "jaxlib:", "pipeline "


@dataclass
class Found:
    """What came of the modules of a row. examples: of each failure the first seed and what is wrong."""

    row: Row
    counts: Counter[str] = field(default_factory=Counter)
    ours: float = 0.0
    theirs: float = 0.0
    examples: dict[str, str] = field(default_factory=dict)

    @property
    def modules(self) -> int:
        """Those that jaxlib's pass takes."""
        return sum(self.counts.values()) - self.counts["peer failed"]

    def json(self) -> dict[str, Any]:
        return {"pass": self.row.name, "compared by": self.row.compare, "modules": self.modules,
                **{outcome: self.counts[outcome] for outcome in OUTCOMES},
                "bytes": self.ours, "peer bytes": self.theirs, "examples": self.examples}


def run(console: Console, seed: int = 0, only: str = "") -> tuple[bool, list[dict[str, Any]]]:
    """Print the tables; whether nothing failed, took more bytes or differed, and one record per row."""
    found = [compare(row, seed) for row in chosen(only)]
    console.print(table(found))
    good = not any(f.counts[outcome] for f in found for outcome in FAILURES)
    for f in found:
        for outcome, what in f.examples.items():
            console.print(f"{f.row.name}: {outcome}: {what}", markup=False)
    pairs = [] if only else list(shardy_pairs.records())
    if pairs:
        console.print(shardy_pairs.table(pairs))
        good &= not any(r[way][failure] for r in pairs for way in shardy_pairs.WAYS for failure in ("more", "failed"))
    compiled = [] if only else list(_examples())
    if compiled:
        console.print(_example_table(compiled))
        good &= not any(record["failure"] for record in compiled)
    return good, [*(f.json() for f in found), *pairs, *compiled]


def chosen(only: str = "") -> Iterator[Row]:
    """The rows whose passes there are."""
    for row in rows():
        ours = [text for text in (row.passes, row.after[0]) if not text.startswith(JAXLIB)]
        if only in row.name and all(map(_is_here, ours)):
            yield row


def steps(passes: str) -> str | list[str]:
    """Passes, or those of ``pipeline export{...}``."""
    return shardy.steps_of(passes.removeprefix(PIPELINE)) if passes.startswith(PIPELINE) else passes


def _is_here(passes: str) -> bool:
    try:
        read_steps(steps(passes))
    except ProgramError:
        return False
    return True


def compare(row: Row, seed: int) -> Found:
    """Run one row's modules."""
    found = Found(row)
    for drawn in range(seed * DRAWN, (seed + 1) * DRAWN):
        if found.modules >= MODULES:
            break
        text = row.module(drawn)
        if row.before:
            before = run_peer(text, row.before)
            if before.failure:
                continue
            text = before.text
        outcome, why = _outcome(row, text, found)
        found.counts[outcome] += 1
        if outcome in FAILURES:
            found.examples.setdefault(outcome, f"seed {drawn}: {why}")
    return found


def _outcome(row: Row, text: str, found: Found) -> tuple[str, str]:
    theirs = run_peer(text, row.peer or peer_text(read_steps(row.passes)))
    try:
        ours = shardy.transform(text, steps(row.passes))
    except EggshardError as error:
        return ("both refuse" if theirs.failure else "ours failed"), str(error)
    except Exception as error:
        return "ours failed", f"{type(error).__name__}: {error}"
    if theirs.failure:
        return "peer failed", theirs.failure
    if row.compare == "bytes":
        return _by_bytes(row, text, ours, theirs.text, found)
    same = ours == theirs.text or (row.compare == "shardings" and shardings(ours) == shardings(theirs.text))
    return ("agreeing", "") if same else ("differing", "")


def _by_bytes(row: Row, text: str, ours: str, theirs: str, found: Found) -> tuple[str, str]:
    for_ours, for_theirs = row.after
    amounts, errors = [], []
    finished = ""
    for made, passes in ((ours, for_ours), (theirs, JAXLIB + for_theirs if for_theirs else "")):
        try:
            finished = _finished(made, passes)
            amounts.append(wire_bytes(finished))
            errors.append("")
        except EggshardError as error:
            amounts.append(0.0)
            errors.append(f"after it: {error}")
    if any(errors):
        return ("both refuse" if all(errors) else "ours failed" if errors[0] else "peer failed"), "".join(errors)
    a, b = amounts
    if row.runs and b < a - 0.5 and not _computes(text, finished):
        return "peer failed", f"computes something else, in {b:.0f} bytes"
    found.ours, found.theirs = found.ours + a, found.theirs + b
    if abs(a - b) < 0.5:
        return "agreeing", ""
    return ("fewer" if a < b else "more"), f"{a:.0f} bytes, jaxlib's {b:.0f}"


def _computes(text: str, local: str) -> bool:
    """Whether the program of a device computes what the module does of which it was made."""
    try:
        assert_runs_equal(text, local, nans=(False,))
    except (AssertionError, EggshardError):
        return False
    return True


def _finished(text: str, passes: str) -> str:
    if not passes.startswith(JAXLIB):
        return shardy.transform(text, passes) if passes else text
    finished = run_peer(text, passes.removeprefix(JAXLIB))
    if finished.failure:
        raise ProgramError(finished.failure)
    return finished.text


def wire_bytes(text: str) -> float:
    """Bytes that the busiest device receives in the collectives of a module."""
    with parsed(text) as module:
        return module_bytes(module).busiest


def table(found: Sequence[Found]) -> Table:
    """One row per pass."""
    out = Table(
        title="Shardy's passes, against jaxlib's", pad_edge=False,
        caption="agreeing: the same text, shardings or bytes. peer failed: or, in fewer bytes, computed other things. "
        "both refuse: with an error. more, differing and ours failed are to be 0. KiB: all modules, ring formulas",
    )
    columns = ("pass", "compared by", "modules", *OUTCOMES, "KiB", "jaxlib's")
    for name in columns:
        out.add_column(name, justify="left" if name in ("pass", "compared by") else "right")
    for f in found:
        priced = [f"{amount / 1024:.0f}" if f.row.compare == "bytes" else "" for amount in (f.ours, f.theirs)]
        counts = [str(f.counts[outcome]) for outcome in OUTCOMES]
        out.add_row(escape(f.row.name), f.row.compare, str(f.modules), *counts, *priced)
    return out


#: What is compiled of the examples, where the passes are there: jaxlib's decisions and ours, on shards by our pass.
DECIDING = ("insert-explicit-reshards{mode=global cost-model=wire-bytes},reshard-to-collectives{mode=global},"
            "canonicalize-collectives")
PEER = "func.func(sdy-insert-explicit-reshards{enable-full-version=true},sdy-reshard-to-collectives),canonicalize"


def _examples() -> Iterator[dict[str, Any]]:
    if not _is_here(DECIDING) or "convert-global-to-local" not in PASSES:
        return
    for name, (best, body) in EXAMPLES.items():
        record: dict[str, Any] = {"example": name, "best": best, "failure": ""}
        propagated = run_peer(example(body), PROPAGATE).text
        try:
            record["ours"] = compiled_bytes(shardy.transform(propagated, DECIDING))
            record["peer"] = compiled_bytes(run_peer(propagated, PEER).text)
        except EggshardError as error:
            record["failure"] = str(error)
        if record.get("ours", 0) > best:
            record["failure"] = "more bytes than are needed"
        yield record


def compiled_bytes(text: str) -> float:
    """Bytes that the busiest device receives in the compiled program of a module with collectives."""
    from bench.peers import compile_text
    from eggshard.hlo.collectives import count_collectives
    from eggshard.shardy.local.wrapping import whole_program

    whole = whole_program(shardy.transform(text, "convert-global-to-local"))
    compiled = compile_text(whole)
    return count_collectives(compiled.hlo_modules()[0].to_string()).wire_bytes


def _example_table(records: Sequence[dict[str, Any]]) -> Table:
    out = Table(title="wire bytes per device, counted from compiled HLO", pad_edge=False)
    for name in ("program", "Shardy", "ours", "best known", ""):
        out.add_column(name, justify="left" if name in ("program", "") else "right")
    for r in records:
        shown = [f"{r[key]:,.0f}" if key in r else "-" for key in ("peer", "ours", "best")]
        out.add_row(r["example"], *shown, escape(r["failure"]))
    return out
