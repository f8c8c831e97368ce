"""Seconds of one process: XLA's program, what users get by default, and code by hand, on one machine's virtual devices.

Every program is planned and compiled in a process of its own; all run by turns on the same arguments, and what counts
is the least time of each. Flops and bytes are of the compiled programs, loops by their trip counts.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.programs import BenchProgram, seconds, use_cpu_devices
from bench.programs.by_hand import by_hand
from bench.worker import in_own_process

_TIMEOUT = 600.0
#: Seconds for which both run by turns, and turns at least and at most.
_SPENT, _FEWEST, _MOST = 6.0, 3, 30
#: What is asked of each program: ours over XLA's, seconds to run.
WORST = 1.05


def interleaved(functions: Sequence[Callable[[], Any]], spent: float = _SPENT) -> list[list[float]]:
    """Seconds of each call, all by turns."""
    import jax

    times: list[list[float]] = [[] for _ in functions]
    began = time.perf_counter()
    for turn in range(_MOST):
        if turn >= _FEWEST and time.perf_counter() - began > spent:
            break
        for function, out in zip(functions, times, strict=True):
            start = time.perf_counter()
            jax.block_until_ready(function())
            out.append(time.perf_counter() - start)
    return times


def placed_inputs(program: BenchProgram, seed: int = 0) -> list[Any]:
    """The arguments drawn by a seed, on the program's devices."""
    import jax
    from jax.sharding import NamedSharding

    from bench.programs import spec

    return [
        jax.device_put(array, NamedSharding(program.mesh, spec(argument.sharding or "")))
        for array, argument in zip(program.inputs(seed), program.arguments, strict=True)
    ]


def compiled_seconds(lowered: Any) -> tuple[Any, float]:
    """A compiled program and the seconds that it took."""
    began = time.perf_counter()
    compiled = lowered.compile()
    return compiled, time.perf_counter() - began


def figures(compiled: Any) -> dict[str, float]:
    """Flops, received bytes and peak bytes of temporaries of one device."""
    from eggshard.hlo.collectives import count_collectives
    from eggshard.hlo.kernels import count_kernels

    text = compiled.as_text()
    return {
        "flops": sum(k.flops * k.trip_count for k in count_kernels(text)),
        "bytes": sum(op.trip_count * op.wire_bytes for op in count_collectives(text).ops),
        "peak": float(compiled.memory_analysis().temp_size_in_bytes),
    }


def difference(ours: Any, theirs: Any) -> float:
    """The largest difference of two results, over the largest value of each array."""
    import jax

    worst = 0.0
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        worst = max(worst, float(np.abs(a - b).max() / (np.abs(b).max() + 1e-30)))
    return worst


def measure(name: str, model: str = "") -> dict[str, Any]:
    """Plan, compile and run in this process."""
    import jax

    import eggshard

    use_cpu_devices()
    program = seconds.program(name)
    lowered = program.lower()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", eggshard.EggshardWarning)
        began = time.perf_counter()
        plan = eggshard.optimize(lowered, cost_model=model or None)
        planned = time.perf_counter() - began
    inputs = placed_inputs(program)
    function = jax.jit(plan.to_jax())
    xla, xla_seconds = compiled_seconds(lowered)
    ours, our_seconds = compiled_seconds(function.lower(*inputs))
    wrong = difference(ours(*inputs), xla(*inputs))
    functions = [xla, ours]
    local = by_hand(program)
    if local is not None:
        functions.append(jax.jit(local).lower(*inputs).compile())
        wrong = max(wrong, difference(functions[-1](*inputs), xla(*inputs)))
    times = interleaved([partial(function, *inputs) for function in functions])
    return {
        "xla": min(times[0]), "ours": min(times[1]), "hand": min(times[2]) if local else None,
        "noise": statistics.median(times[0]) / min(times[0]),
        "xla_compile": xla_seconds, "compile": our_seconds, "plan": planned, "difference": wrong,
        "xla_figures": figures(xla), "figures": figures(ours), "predicted": plan.cost.total,
        "fallback": plan.search.fallback, "model": str(plan.cost.model) if hasattr(plan.cost, "model") else "",
    }  # fmt: skip


def run(console: Console, only: str = "", seed: int = 0, variants: int = 8, model: str = "") -> bool:
    """Print one row per program; true if none fell back, was wrong, or ran longer than is asked."""
    table = Table(
        title="seconds in one process, 8 virtual devices",
        pad_edge=False,
        caption="ours / XLA's of the same run: least seconds to run, seconds to compile, flops, received bytes, peak "
        "of temporaries. hand: our seconds over those of the program by hand. noise: XLA's median over its least",
    )
    columns = "program,XLA ms,ours ms,run,hand,noise,compile,flops,bytes,peak,plan s,"
    for column in columns.split(","):
        table.add_column(column, justify="left" if column in ("program", "") else "right")
    ratios: dict[str, list[float]] = {}
    compiles = []
    good = True
    kinds = {**seconds.names(), "drawn": tuple(seconds.variants(seed, variants))}
    for kind, names in kinds.items():
        for name in names:
            if only not in name:
                continue
            found = in_own_process("bench.run", name, model, timeout=_TIMEOUT)
            failures = _failures(found)
            good &= not failures
            if "error" in found:
                table.add_row(escape(name), *["-"] * 10, escape(found["error"]))
                continue
            ratio = found["ours"] / found["xla"]
            ratios.setdefault(kind, []).append(ratio)
            compiles.append(found["compile"] / found["xla_compile"])
            table.add_row(
                escape(name), f"{1e3 * found['xla']:.2f}", f"{1e3 * found['ours']:.2f}", f"{ratio:.2f}",
                _ratio(found["ours"], found["hand"]) if found["hand"] else "-", f"{found['noise']:.2f}",
                f"{compiles[-1]:.2f}",
                *(_ratio(found["figures"][what], found["xla_figures"][what]) for what in ("flops", "bytes", "peak")),
                f"{found['plan']:.1f}", escape("; ".join(failures)),
            )  # fmt: skip
            print(f"{name}: {ratio:.2f}, compile {compiles[-1]:.2f} {'; '.join(failures)}", file=sys.stderr, flush=True)
    console.print(table)
    for kind, found in ratios.items():
        console.print(
            f"{kind}: {len(found)} programs, run over XLA's: geometric mean {statistics.geometric_mean(found):.2f}, "
            f"worst {max(found):.2f}; above {WORST}: {sum(r > WORST for r in found)}"
        )
    if compiles:
        console.print(f"compile over XLA's: median {statistics.median(compiles):.2f}, worst {max(compiles):.2f}")
    return good


def _ratio(ours: float, theirs: float) -> str:
    return f"{ours / theirs:.2f}" if theirs else "0" if not ours else "inf"


def _failures(found: dict[str, Any]) -> list[str]:
    if "error" in found:
        return [found["error"]]
    out = []
    if found["fallback"]:
        out.append(f"fell back: {found['fallback'][:60]}")
    if found["difference"] > 1e-3:
        out.append(f"differs by {found['difference']:.1e}")
    if found["ours"] > WORST * found["xla"]:
        out.append("slower")
    return out


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:])))
