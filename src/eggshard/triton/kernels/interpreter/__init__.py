"""What a kernel computes, run in NumPy for one program instance or a grid of them: layouts do not change values."""

from eggshard.triton.kernels.interpreter.alignment import check_layouts
from eggshard.triton.kernels.interpreter.judging import Judgement, judge
from eggshard.triton.kernels.interpreter.running import run

__all__ = ["Judgement", "check_layouts", "judge", "run"]
