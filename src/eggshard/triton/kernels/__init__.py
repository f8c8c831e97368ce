"""Kernels of one chip: tile programs in TritonGPU IR, as values and ops."""
