"""What a kernel computes, run in NumPy for one program instance or a grid of them: layouts do not change values."""

from eggshard.kernels.interpreter.judging import judge
from eggshard.kernels.interpreter.running import run

__all__ = ["judge", "run"]
