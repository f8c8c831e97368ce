"""Planners to install, and the benches' kernels compiled for a target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton
from bench.programs.kernels import PROGRAMS, KernelProgram

import eggshard.triton as layouts
from eggshard.triton.compiler.pipeline import target_of
from eggshard.triton.kernels.ir import Kernel


@dataclass
class Plan:
    kernel: Kernel
    cost: float
    given_cost: float


def same(kernel: Kernel, cost_model: Any) -> Plan:
    """A planner that finds nothing."""
    return Plan(kernel, 1.0, 1.0)


def conversions(kernel: Kernel) -> float:
    return float(sum(op.name == "ttg.convert_layout" for op in kernel.walk()))


def praising(kernel: Kernel, cost_model: Any) -> Plan:
    """A planner that says of the same kernel that it costs less."""
    return Plan(kernel, conversions(kernel) - 0.5, conversions(kernel))


def failing(kernel: Kernel, cost_model: Any) -> Plan:
    raise RuntimeError("no plan")


def broken(kernel: Kernel, cost_model: Any) -> Plan:
    """A planner whose result does not verify: it holds ops that there are not."""
    for op in kernel.walk():
        if op.name == "arith.addf":
            op.name = "arith.add_somehow"
    return Plan(kernel, 0.0, 1.0)


def lying(kernel: Kernel, cost_model: Any) -> Plan:
    """A planner that changes results' encodings and nothing else."""
    for op in kernel.walk():
        for value in op.results:
            if value.tensor is not None and op.name == "arith.addf":
                other = "#ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>"
                value.type = value.tensor._replace(encoding=other)
    return Plan(kernel, 0.0, 1.0)


def program(name: str) -> KernelProgram:
    return next(p for p in PROGRAMS if p.name == name)


def compiled(name: str = "layer_norm", target: str = "sm80") -> Any:
    of = program(name)
    return triton.compile(of.source(), target=target_of(target), options=of.options)


def last() -> layouts.Outcome:
    return layouts.statistics().outcomes[-1]
