"""Planning training steps of many equal parts: seconds, memory and gap, beside XLA's compile time in the same run.

Every program is planned, and compiled by XLA, in a process of its own, whose engine was warmed on another program.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.programs import BenchProgram, use_cpu_devices
from bench.programs.parts import KINDS
from bench.worker import in_own_process

#: Kinds of steps, of how many layers each is planned, and with which limits (of `LIMITS`): what a usual run measures,
#: which is all of which something is asked, and everything.
USUAL: tuple[tuple[str, tuple[int, ...], str], ...] = (
    ("light", (2, 24, 48), ""),
    ("heavy", (24,), ""),
    ("scanned", (24, 48), ""),
    ("experts", (12,), ""),
    *((kind, (count,), "") for kind, (_, count) in KINDS.items()),
)
CASES: tuple[tuple[str, tuple[int, ...], str], ...] = (
    ("light", (1, 2, 6, 12, 24, 48), ""),
    ("light", (24,), "in a hurry"),
    ("light", (24,), "certified"),
    ("heavy", (2, 24), ""),
    ("heavy", (24,), "certified"),
    ("scanned", (12, 24, 48), ""),
    ("experts", (6, 12), ""),
    *((kind, (count,), "") for kind, (_, count) in KINDS.items()),
)
#: In a hurry: no dual ascent beyond what is in proportion. Certified: time for the bound of all layers.
LIMITS: dict[str, dict[str, float]] = {
    "": {}, "in a hurry": {"patience": 0.0}, "certified": {"seconds_per_node": 0.02},
}
_TIMEOUT = 400.0
#: What is asked of 24 layers: seconds of `optimize` over XLA's, seconds of light layers' report, and bytes.
MOST = {"light": 1.0, "heavy": 0.5}
REPORT, BYTES = 3.0, 2 << 30


def program(kind: str, layers: int) -> BenchProgram:
    """A training step on a 4x2 mesh.

    light: grouped-query attention, RMS norm, a gated MLP, momentum; width 192, sequence 96. heavy: multi-head
    attention, layer norm with biases, a GELU MLP, Adam; width 512, sequence 256. scanned: light, its layers in a loop.
    experts: light with every second MLP a mixture of experts. Others: models whose equal parts are no row of layers
    (`bench.programs.parts`).
    """
    from bench.programs import parts, training

    return parts.step_of_parts(kind, layers) if kind in KINDS else training.step_of_layers(kind, layers)


def measure(kind: str, layers: int, limits: str = "") -> dict[str, Any]:
    """Plan in this process, then compile by XLA, and say what each took."""
    import eggshard
    from bench.scale import peak_memory

    use_cpu_devices()
    eggshard.optimize(program("light", 1).lower())
    lowered = program(kind, layers).lower()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", eggshard.EggshardWarning)
        before = peak_memory()
        began = time.perf_counter()
        plan = eggshard.optimize(lowered, limits=eggshard.Limits(**LIMITS[limits]))
        seconds = time.perf_counter() - began
    peak = peak_memory() - before
    began = time.perf_counter()
    lowered.compile()
    xla = time.perf_counter() - began
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        plan.report(Path(folder, "plan.html"))
        report = time.perf_counter() - began
    return {
        "ops": len(plan.program.region.ops), "seconds": seconds, "xla": xla, "peak": peak, "report": report,
        "gap": plan.search_gap, "cost": plan.cost.total, "bytes": plan.serial_bytes, "fallback": plan.search.fallback,
        "stages": dict(plan.search.seconds),
    }


def run(console: Console, only: str = "", everything: bool = False) -> bool:
    """Print one row per step; true if none fell back and those of 24 layers took no longer than is asked.

    only: steps whose name, with the number of layers, contains this. everything: all of `CASES`.
    """
    table = Table(title="planning training steps", pad_edge=False,
                  caption="time: optimize / XLA compile, this run; peak: of optimize, beyond what the process had")
    for name in ("step", "parts", "ops", "optimize s", "XLA s", "time", "report s", "peak GiB", "cost ms",
                 "search gap %", ""):
        table.add_column(name, justify="left" if name in ("step", "") else "right")
    good = True
    for kind, counts, limits in CASES if everything else USUAL:
        name = f"{kind}, {limits}" if limits else kind
        for layers in counts:
            if only not in f"{name} {layers}":
                continue
            found = _measured(kind, layers, limits)
            failures = _failures(kind, layers, found)
            good &= not failures
            if "error" in found:
                table.add_row(name, str(layers), *["-"] * 8, found["error"])
                continue
            table.add_row(
                name, str(layers), str(found["ops"]), f"{found['seconds']:.2f}", f"{found['xla']:.2f}",
                f"{found['seconds'] / found['xla']:.2f}", f"{found['report']:.2f}", f"{found['peak'] / 2**30:.2f}",
                f"{1e3 * found['cost']:.3f}", f"{100 * found['gap']:.1f}", "; ".join(failures),
            )
    console.print(table)
    return good


def _measured(kind: str, layers: int, limits: str) -> dict[str, Any]:
    return in_own_process("bench.layers", kind, str(layers), limits, timeout=_TIMEOUT)


def _failures(kind: str, layers: int, found: dict[str, Any]) -> list[str]:
    if "error" in found:
        return [found["error"]]
    out = []
    if found["fallback"]:
        out.append(f"fell back: {found['fallback'][:60]}")
    if layers == 24 and found["seconds"] > MOST.get(kind, float("inf")) * found["xla"]:
        out.append("too long beside XLA")
    if (kind, layers) == ("light", 24) and found["report"] > REPORT:
        out.append("the report takes too long")
    if found["peak"] > BYTES:
        out.append("too much memory")
    if found["gap"] > 0.01:
        out.append("gap")
    return out


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])))
