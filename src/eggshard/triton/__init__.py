"""Layout conversions of TritonGPU kernels: planned over the whole kernel, and put into Triton's own compiler."""
