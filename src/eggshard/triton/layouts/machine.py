"""The machine as layouts depend on it: the shape of a thread block."""

from __future__ import annotations

from typing import NamedTuple

from eggshard.triton.kernels.ir import Kernel


class Machine(NamedTuple):
    """A target (``cuda:80``, ``hip:gfx942``) and a launch: warps per block, threads per warp, blocks per cluster."""

    target: str
    num_warps: int = 4
    threads_per_warp: int = 32
    num_ctas: int = 1

    @staticmethod
    def of(kernel: Kernel) -> Machine:
        return Machine(kernel.target, kernel.num_warps, kernel.threads_per_warp, kernel.num_ctas)

    @property
    def vendor(self) -> str:
        """``cuda`` or ``hip``."""
        return self.target.partition(":")[0]

    @property
    def architecture(self) -> str:
        return self.target.partition(":")[2]

    @property
    def capability(self) -> int:
        """The compute capability times ten (80, 90); 0 of a machine that is not NVIDIA's."""
        return int(self.architecture) if self.vendor == "cuda" and self.architecture.isdigit() else 0
