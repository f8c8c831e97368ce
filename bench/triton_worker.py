"""Measures kernels in a process of its own: libtriton may end it instead of raising."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

from bench.programs.kernels import PROGRAMS, variants
from bench.triton_rows import measure
from bench.worker import serve


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """``kernel``: a name of the table, or of a variant of ``seed`` and ``count``; ``planner``: ``module:function``."""
    warm(request["target"])
    programs = [*PROGRAMS, *variants(request["seed"], request["count"])]
    program = next(p for p in programs if p.name == request["kernel"])
    return measure(program, request["target"], planner(request["planner"]), request["ways"]).json()


def planner(name: str) -> Any:
    module, function = name.split(":")
    return getattr(importlib.import_module(module), function)


@cache
def warm(target: str) -> None:
    """What is loaded once belongs to no kernel's time."""
    measure(next(p for p in PROGRAMS if p.name == "softmax"), target, lambda kernel: None, ways=())


if __name__ == "__main__":
    serve(answer)
