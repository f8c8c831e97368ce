"""Execution of a whole plan on the device simulator: global NumPy arrays in, global NumPy arrays out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from eggshard.errors import LoweringError
from eggshard.ops.arithmetic import current
from eggshard.program.types import TensorType
from eggshard.simulate.simulator import gather_from_devices, run, scatter_to_devices

if TYPE_CHECKING:
    from eggshard.plan.record import PlanRecord


def run_global(plan: PlanRecord, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Run on simulated devices. LoweringError if arrays do not match the program's inputs in number or type."""
    return gathered(plan, run(plan.device_program, scattered(plan, arrays)))


def scattered(plan: PlanRecord, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The device program's inputs ``[devices, *local shape]``; LoweringError as `run_global`."""
    program = plan.program
    if len(arrays) != len(program.input_types):
        raise LoweringError(
            f"{program.name} takes {len(program.input_types)} arrays, got {len(arrays)}; give the leaves of structured "
            "arguments one by one, jax.tree.leaves((args, kwargs)), or call plan.to_jax()"
        )
    names = program.input_names or ("",) * len(arrays)
    return [
        scatter_to_devices(plan.mesh, checked(array, type_, f"input {i}" + (f" ({name})" if name else "")), placement)
        for i, (array, type_, name, placement) in enumerate(
            zip(arrays, program.input_types, names, plan.input_placements, strict=True))
    ]


def gathered(plan: PlanRecord, results: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The program's outputs from the device program's, ``[devices, *local shape]``."""
    return tuple(
        gather_from_devices(plan.mesh, r, t.shape, p)
        for r, t, p in zip(results, plan.program.output_types, plan.output_placements, strict=True)
    )


def checked(array: np.ndarray, type_: TensorType, what: str) -> np.ndarray:
    """The array as NumPy; LoweringError if its shape or element type is another than the program's."""
    try:
        array = np.asarray(array)
    except ValueError as error:
        raise LoweringError(f"{what} is no array ({error}); the program takes {type_}") from None
    if array.shape != type_.shape or not current().holds(array, type_.dtype):
        raise LoweringError(
            f"{what} is {array.dtype}{list(array.shape)}, the program takes {type_}; pass an array of that type"
        )
    return array
