"""Layouts of Triton's kernels, planned inside of Triton's own compiler and outside of it."""
