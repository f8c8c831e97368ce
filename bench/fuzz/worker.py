"""Drawn programs checked in a process of their own, which a compiler may end."""

from __future__ import annotations

import gc
import json
import os
import re
import sys
from typing import Any

from bench.worker import Worker

#: Seconds that a program may take, shrinking it included: its planning alone has `Limits.seconds`.
_TIMEOUT = 600.0
#: Programs between two collections of garbage, which is a few MB of each.
_COLLECTED = 20
#: LLVM optimises none of what is compiled, which takes most of XLA:CPU's time; its passes on HLO stay as they are.
_FLAGS = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"


class Checker(Worker):
    """Answers {"seed", "whole"} with {"problems", "lines", "calls", "refused"}; with "script", with the program's; with
    "reference", whether JAX refuses it.

    script: ``"drawn"``, or ``"shrunk"`` for the smallest program with a problem of the same kind, which takes as long
    as many programs.
    """

    def __init__(self) -> None:
        flags = " ".join(filter(None, (os.environ.get("XLA_FLAGS"), _FLAGS)))
        super().__init__("bench.fuzz.worker", _TIMEOUT, {"XLA_FLAGS": flags})


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """What a request asks of its seed's program."""
    from bench.fuzz.check import checked, problems, reference
    from bench.fuzz.generate import generate
    from bench.fuzz.shrink import shrunk

    drawn, whole = generate(request["seed"]), bool(request.get("whole"))
    if request.get("script") == "drawn":
        return {"script": drawn.script()}
    if request.get("reference"):
        return {"refused": reference(drawn) is None}
    verdict = checked(drawn, whole)
    found = verdict or []
    if request.get("script"):
        kinds = {p.kind for p in found[:1]}
        small = shrunk(drawn, lambda d: any(p.kind in kinds for p in problems(d, whole and "order" in kinds)))
        return {"script": small.script()}
    calls = sorted({c for line in drawn.lines for c in re.findall(r"(?:lax|jnp|jax)\.[\w.]+", line.expression)})
    return {"problems": [str(p) for p in found], "lines": len(drawn.lines), "calls": calls,
            "refused": verdict is None}  # fmt: skip


def main() -> None:
    """Serve requests from standard input."""
    import jax

    jax.config.update("jax_enable_x64", True)
    from bench.fuzz.generate import DEVICES
    from bench.programs import use_cpu_devices

    use_cpu_devices(DEVICES)
    out = sys.stdout
    sys.stdout = sys.stderr
    gc.disable()  # it would go through JAX's objects again and again
    for number, line in enumerate(sys.stdin, 1):
        if number % _COLLECTED == 0:
            gc.collect()
        out.write(json.dumps(answer(json.loads(line))) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
