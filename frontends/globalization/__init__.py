"""Globalization: code that its author wrote per device, read as the global program that it is.

*In*: a program with manual computations (JAX's shard_map). *Out*: the program in which those that exchange by
collective-permutes are plain ops on global tensors, so that strips of neighbours become windows and roll, pad and
concatenate again (`global_program`). Every local tensor is followed as indices into global ones (`local_values`): data
movement, on devices and between them, changes indices alone; where something is computed, or carried by a loop, global
tensors are cut and put together as the indices say (`body_reader`).

*Not here*: whether the global program is cheaper, which planning both decides. What is not read stays as it is:
computations that leave axes free, and all whose ops, groups or indices have no such reading.
"""

from eggshard.frontends.globalization.global_program import globalized

__all__ = ["globalized"]
