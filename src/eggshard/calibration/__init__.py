"""Calibration: cost models fitted to measured seconds of the devices at hand, or to XLA's own tables.

In: devices, or a table. Out: a `costmodel.Machine`. Needs JAX where it measures.

`python -m bench costmodel` shows what a change of its constants does.
"""
