"""What a kernel computes, run in NumPy for one program instance or a grid of them: layouts do not change values."""

from testing.kernel_interpreter.judging import Judgement, judge
from testing.kernel_interpreter.running import run

__all__ = ["Judgement", "judge", "run"]
