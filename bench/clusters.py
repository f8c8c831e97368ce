"""Plans for clusters, made without one: the same programs on meshes of 8 to 4,096 devices that are not here.

Every program is planned on every mesh in a process of its own, after the engine was warmed on another program on that
mesh; then the plan is lowered for TPUs. Both meshes of a ratio are measured again where it is above what is asked: what
counts is the least time of each. A usual run is of the two meshes that are asked about, without the longest programs.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
import warnings
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.programs import clusters, use_cpu_devices
from bench.worker import in_own_process

#: Meshes, the first of each row being what the others are compared with.
MESHES = (("2x2x2", "4x4x4", "16x16x16", "8x16x32"), ("2x4", "32x128"), ("8", "4096"))
#: What is asked of the mesh (16, 16, 16): seconds over those of (2, 2, 2).
ASKED, MOST = "16x16x16", 1.5
#: Programs that are planned in less time than this are compared with it.
INSTANT = 0.1
_TIMEOUT = 300.0
#: So often a program and mesh are measured, where they miss what is asked.
_TIMES = 3


def measure(name: str, mesh: str) -> dict[str, Any]:
    """Plan in this process and lower for TPUs, and say what it took."""
    import eggshard
    from bench.scale import peak_memory

    use_cpu_devices(1)
    eggshard.optimize(clusters.program("MLP, 2-D weights", mesh).lower_for("tpu"))
    lowered = clusters.program(name, mesh).lower_for("tpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", eggshard.EggshardWarning)
        before = peak_memory()
        began = time.perf_counter()
        plan = eggshard.optimize(lowered)
        seconds = time.perf_counter() - began
    out = {"seconds": seconds, "peak": peak_memory(), "grown": peak_memory() - before, "steps": len(plan.steps),
           "gap": plan.search_gap, "fallback": plan.search.fallback, "stages": dict(plan.search.seconds)}
    began = time.perf_counter()
    str(plan), plan.explain(), plan.wire_bytes
    out["shown"], began = time.perf_counter() - began, time.perf_counter()
    text = plan.to_json()
    eggshard.Plan.from_json(text)
    out["json"], out["json_bytes"], began = time.perf_counter() - began, len(text), time.perf_counter()
    exported = plan.export(platforms=("tpu",))
    out["tpu"], out["tpu_bytes"] = time.perf_counter() - began, len(exported.serialize())
    out["devices"] = exported.nr_devices
    return out


def run(console: Console, only: str = "", everything: bool = False, seed: int = 0, variants: int = 8) -> bool:
    """Print one row per program and mesh; true if all were planned and lowered, in no more time than is asked.

    everything: all programs, on all meshes. variants: how many to draw besides, by the seed.
    """
    table = Table(
        title="planning for clusters", pad_edge=False,
        caption="time: optimize, over the first mesh of the rank; shown: str, explain, wire_bytes; JSON: there and "
        "back; TPU: lowered and exported without devices",
    )
    for column in ("program", "mesh", "optimize s", "time", "peak GiB", "steps", "search gap %", "shown s", "JSON s",
                   "MB", "TPU s", "MB", ""):
        table.add_column(column, justify="left" if column in ("program", "mesh", "") else "right")
    good = True
    ratios = []
    for name in (*clusters.names(everything), *clusters.variants(seed, variants)):
        if only not in name:
            continue
        for row in MESHES if everything else ((MESHES[0][0], ASKED),):
            first: dict[str, Any] = {}
            for mesh in row:
                found = _measured(name, mesh)
                if "error" in found:
                    good = False
                    table.add_row(escape(name), mesh, *["-"] * 10, found["error"])
                    continue
                first = first or found
                for _ in range(_TIMES - 1):
                    if mesh != ASKED or _ratio(found, first) <= MOST:
                        break
                    first = _least(first, _measured(name, row[0]))
                    found = _least(found, _measured(name, mesh))
                ratio = _ratio(found, first)
                failure = "too long" if mesh == ASKED and ratio > MOST else ""
                ratios += [ratio] if mesh == ASKED else []
                good &= not failure
                table.add_row(
                    escape(name), mesh, f"{found['seconds']:.2f}", f"{ratio:.2f}", f"{found['peak'] / 2**30:.2f}",
                    str(found["steps"]), f"{100 * found['gap']:.1f}", f"{found['shown']:.2f}", f"{found['json']:.2f}",
                    f"{found['json_bytes'] / 1e6:.1f}", f"{found['tpu']:.2f}", f"{found['tpu_bytes'] / 1e6:.1f}",
                    failure,
                )  # fmt: skip
                print(f"{name} on {mesh}: {found['seconds']:.2f} s", file=sys.stderr)
    console.print(table)
    if ratios:
        console.print(
            f"{len(ratios)} programs on {ASKED}, over {MESHES[0][0]}: median {statistics.median(ratios):.2f}, most "
            f"{max(ratios):.2f}; above {MOST}: {sum(r > MOST for r in ratios)}"
        )
    return good


def _ratio(found: dict[str, Any], first: dict[str, Any]) -> float:
    return float(found["seconds"] / max(INSTANT, first["seconds"]))


def _least(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Of two measurements the one that took less time."""
    return old if "error" in new or old["seconds"] <= new["seconds"] else new


def _measured(name: str, mesh: str) -> dict[str, Any]:
    return in_own_process("bench.clusters", name, mesh, timeout=_TIMEOUT)


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], sys.argv[2])))
