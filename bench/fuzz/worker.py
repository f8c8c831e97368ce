"""Drawn programs checked in a process of their own, which a compiler may end."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from bench.worker import Worker


class Checker(Worker):
    """Answers {"seed", "whole"} with {"problems", "script", "lines", "calls", "refused"}."""

    def __init__(self) -> None:
        super().__init__("bench.fuzz.worker", timeout=600.0)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The problems of a seed's program, and the script of the smallest program that has one."""
    from bench.fuzz.check import problems, refused
    from bench.fuzz.generate import generate
    from bench.fuzz.shrink import shrunk

    drawn = generate(request["seed"])
    whole = bool(request.get("whole"))
    found = problems(drawn, whole)
    script = ""
    if found:
        kind = found[0].kind
        small = shrunk(drawn, lambda d: any(p.kind == kind for p in problems(d, whole and kind == "order")))
        found = problems(small, whole) or found
        script = small.script()
    calls = sorted({c for line in drawn.lines for c in re.findall(r"(?:lax|jnp|jax)\.[\w.]+", line.expression)})
    return {"problems": [str(p) for p in found], "script": script, "lines": len(drawn.lines), "calls": calls,
            "refused": not found and refused(drawn)}  # fmt: skip


def main() -> None:
    """Serve requests from standard input."""
    import jax

    jax.config.update("jax_enable_x64", True)
    from bench.fuzz.generate import DEVICES
    from bench.programs import use_cpu_devices

    use_cpu_devices(DEVICES)
    out = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        out.write(json.dumps(answer(json.loads(line))) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
