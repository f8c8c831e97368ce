"""Every reshard of a matrix by whole axes, as collectives of Shardy's: jaxlib's pass, and ours in both modes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table
from tests.shardy.peer import run_peer

from bench.lower_bound import State, shardings
from eggshard import shardy
from eggshard.shardy.module import parsed
from eggshard.shardy.wire_bytes import WireBytes, function_bytes

CASES = (({"x": 2, "y": 2, "z": 2}, 16), ({"x": 2, "y": 3, "z": 2}, 72))
PASS = "reshard-to-collectives"
WAYS = (PASS, f"{PASS}{{mode=global}}")


def module(axes: dict[str, int], n: int, source: State, targets: Sequence[State]) -> str:
    """One function per target: the reshard from the source."""
    mesh = ", ".join(f'"{axis}"={size}' for axis, size in axes.items())
    type_ = f"tensor<{n}x{n}xf32>"
    before = text(source)
    functions = [
        f"func.func @{name}(%a: {type_} {{sdy.sharding = #sdy.sharding{before}}}) -> {type_} {{\n"
        f"  %0 = sdy.reshard %a {text(target)} : {type_}\n  return %0 : {type_}\n}}"
        for name, target in zip(("main", *(f"f{i}" for i in range(1, len(targets)))), targets, strict=True)
    ]
    return "\n".join([f"sdy.mesh @mesh = <[{mesh}]>", *functions])


def text(state: State) -> str:
    """A sharding by whole axes, as Shardy writes it."""
    dims = ", ".join("{" + ", ".join(f'"{axis}"' for axis in axes) + "}" for axes in state)
    return f"<@mesh, [{dims}]>"


def counted(text_: str, targets: Sequence[State]) -> list[WireBytes | None]:
    """What each function of a module takes, in order; None where its value does not come to lie at its target."""
    with parsed(text_) as found:
        reached = []
        for function, target in zip(found.functions, targets, strict=True):
            *_, last = function.regions[0].blocks[0].operations
            sharding = found.sharding(last.operands[0])
            reached.append(sharding is not None and sharding.body() == text(target))
        counts = function_bytes(found).values()
        return [count if there else None for count, there in zip(counts, reached, strict=True)]


def sweep(axes: dict[str, int], n: int) -> dict[str, Any]:
    """All pairs: how many reshards are cheaper and dearer than jaxlib's, and what those take that both do."""
    record: dict[str, Any] = {"mesh": "x".join(map(str, axes.values())), "matrix": f"{n}x{n}", "pairs": 0}
    record |= {"peer": 0.0, "peer failed": 0}
    record |= {way: {"fewer": 0, "more": 0, "failed": 0, "bytes": 0.0} for way in WAYS}
    states = list(shardings(axes, (n, n)))
    for source in states:
        targets = [state for state in states if state != source]
        given = module(axes, n, source, targets)
        theirs = counted(run_peer(given, f"func.func(sdy-{PASS})").text, targets)
        record["pairs"] += len(targets)
        record["peer"] += sum(t.busiest for t in theirs if t)
        record["peer failed"] += theirs.count(None)
        for way in WAYS:
            ours, found = counted(shardy.transform(given, way), targets), record[way]
            found["failed"] += ours.count(None)
            both = [(o, t) for o, t in zip(ours, theirs, strict=True) if o and t]
            found["bytes"] += sum(o.busiest for o, _ in both)
            found["fewer"] += sum(o.busiest < t.busiest - 0.5 for o, t in both)
            found["more"] += sum(o.busiest > t.busiest + 0.5 for o, t in both)
    return record


def records() -> Iterator[dict[str, Any]]:
    for axes, n in CASES:
        yield sweep(axes, n)


def table(found: Sequence[dict[str, Any]]) -> Table:
    """One row per mesh and mode."""
    out = Table(title="every reshard of a matrix by whole axes: bytes of the busiest device, added up", pad_edge=False)
    columns = ("mesh", "matrix", "pairs", "jaxlib failed", "jaxlib's", "mode", "ours", "fewer", "more", "ours failed")
    for name in columns:
        out.add_column(name, justify="left" if name in ("mesh", "mode") else "right")
    for r in found:
        for way, mode in zip(WAYS, ("shardy", "global"), strict=True):
            w = r[way]
            out.add_row(
                r["mesh"], r["matrix"], str(r["pairs"]), str(r["peer failed"]), f"{r['peer']:,.0f}", mode,
                f"{w['bytes']:,.0f}", str(w["fewer"]), str(w["more"]), str(w["failed"]),
            )  # fmt: skip
    return out
