"""Layout conversions of TritonGPU kernels: planned over the whole kernel, and put into Triton's own compiler."""

from eggshard.triton.installation import Installation, install, uninstall
from eggshard.triton.outcomes import Outcome, Statistics, statistics

__all__ = ["Installation", "Outcome", "Statistics", "install", "statistics", "uninstall"]
