"""TritonGPU IR in: kernels from text or from Triton's own modules."""

from eggshard.frontends.triton.libtriton import load

__all__ = ["load"]
