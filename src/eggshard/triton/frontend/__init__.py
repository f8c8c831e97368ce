"""The TritonGPU IR front end: kernels from text or from Triton's own modules."""

from eggshard.triton.frontend.libtriton import load

__all__ = ["load"]
