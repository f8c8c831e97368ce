"""The device simulator, which runs device programs in NumPy, all devices of a mesh in one process.

In: a `StepPlan` (`steps`), or a whole plan, and global arrays. Out: global arrays. Importing the room also gives manual
computations, whose bodies are device programs, their meaning (`manual`). What an op or a step means on one shard stands
in `ops` and here, once; engines that run devices elsewhere use these functions on a mesh that lists one device.
"""

from eggshard.simulate import manual as manual
