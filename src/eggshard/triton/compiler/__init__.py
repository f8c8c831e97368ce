"""Integration with Triton's compiler: its pipeline tapped, its modules compared with ours, the better kept.

In: a compilation of Triton's. Out: the module that it goes on with, and the outcome (`outcomes`). What layouts a kernel
should have is planned outside, in `triton.planning`.
"""
