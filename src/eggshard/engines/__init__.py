"""Engines, which run plans: found by name in `running`; `jax` on devices, or a process or MPI rank per device.

In: a plan and arrays. Out: arrays. `workspace` lays out the memory that an engine owns, `ranks` runs a device program
on one device at a time, `processes` and `mpi` start such devices here or find them.

Engines know the steps of a device program and nothing of how it was found.

`python -m bench engines` shows what a change of its constants does.
"""
