"""Layout conversions of TritonGPU kernels: planned over the whole kernel, and put into Triton's own compiler.

`python -m bench triton` shows what a change of its constants does.
"""

from eggshard.triton.compiler.installation import Installation, install, uninstall
from eggshard.triton.compiler.outcomes import Outcome, Statistics, statistics
from eggshard.triton.optimization import optimize
from eggshard.triton.planning import LayoutPlan, plan_layouts

__all__ = [
    "Installation", "LayoutPlan", "Outcome", "Statistics", "install", "optimize", "plan_layouts", "statistics",
    "uninstall",
]
