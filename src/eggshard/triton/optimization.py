"""Optimization of a kernel in one call, from text or module to plan; what cannot be planned is kept, with a warning."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from eggshard.errors import EggshardError, FallbackWarning
from eggshard.triton.frequencies import USUAL, Frequencies
from eggshard.triton.kernels.ir import Kernel
from eggshard.triton.kernels.text import write_generic
from eggshard.triton.layout_costs import LayoutCostModel
from eggshard.triton.planning import LayoutPlan, given_plan, plan_layouts
from eggshard.triton.pricing import cost


def optimize(
    kernel: Any, *, cost_model: LayoutCostModel | None = None, assumed: Frequencies = USUAL, seconds: float = 60.0,
    verify: bool = True,
) -> LayoutPlan:
    """The cheapest layouts for a TritonGPU kernel, which Triton's canonicalizer simplifies first.

    kernel: a file of TTGIR, its text in either form, a libtriton module, or a `Kernel`. cost_model: anything with
    ``price(counts)``; by default that of the kernel's target. assumed: trip counts and branch frequencies where the
    kernel does not say. seconds: after which the search ends. verify: have libtriton verify the result.

    Where planning fails the kernel is returned as it came, with an `EggshardWarning`. Raises `ProgramError` for what is
    no TritonGPU IR.
    """
    from eggshard.triton.frontend.libtriton import read

    if isinstance(kernel, Path):
        kernel = kernel.read_text()
    given, simplified = read(write_generic(kernel) if isinstance(kernel, Kernel) else str(kernel))
    if isinstance(kernel, Kernel):
        given = kernel
    try:
        plan = plan_layouts(simplified, cost_model, assumed=assumed, seconds=seconds)
        before = cost(given, plan.cost_model, assumed)
        if plan.cost > before:
            return given_plan(given, cost_model, assumed)
        plan = replace(plan, given=given, given_cost=before)
        if verify:
            read(write_generic(plan.kernel))
    except Exception as error:  # whatever it was, the kernel that came in is still right
        what = str(error) if isinstance(error, EggshardError) else f"{type(error).__name__}: {error}"
        warnings.warn(f"the kernel keeps its layouts: {what}", FallbackWarning, stacklevel=2)
        return given_plan(given, cost_model, assumed)
    return plan
