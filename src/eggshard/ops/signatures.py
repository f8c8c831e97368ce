"""Signature checks of ops: number and types of operands and regions."""

from __future__ import annotations

from collections.abc import Sequence

from eggshard.errors import ProgramError
from eggshard.ops import numerics
from eggshard.ops.base import Types
from eggshard.program.program import Region
from eggshard.program.types import TensorType, is_float

#: Classes of element types that an op accepts: (f)loat, (c)omplex, (i)nteger, (u)nsigned, (b)oolean.
_CLASS_NAMES = {"f": "float", "c": "complex", "i": "signed integer", "u": "unsigned integer", "b": "i1"}


def dtype_class(dtype: str) -> str:
    """One letter of ``fciub``."""
    if dtype == "i1":
        return "b"
    if numerics.is_complex(dtype):
        return "c"
    if is_float(dtype):
        return "f"
    return "u" if numerics.is_unsigned(dtype) else "i"


def require_count(operands: Types, count: int) -> None:
    """ProgramError unless there are ``count`` operands."""
    if len(operands) != count:
        raise ProgramError(f"takes {count} operand{'s' * (count != 1)}, got {len(operands)}")


def require_class(type_: TensorType, classes: str) -> None:
    """ProgramError unless the element type belongs to one of the classes."""
    if dtype_class(type_.dtype) not in classes:
        accepted = ", ".join(_CLASS_NAMES[c] for c in classes)
        raise ProgramError(f"{type_} has an element type that it does not accept; accepted: {accepted}")


def require_regions(regions: Sequence[Region], count: int) -> None:
    """ProgramError unless the op has ``count`` regions."""
    if len(regions) != count:
        raise ProgramError(f"takes {count} region{'s' * (count != 1)}, got {len(regions)}")


def output_types(region: Region) -> Types:
    """What a region returns."""
    return tuple(region.types[v] for v in region.outputs)


def require_signature(region: Region, inputs: Types, outputs: Types, what: str) -> None:
    """ProgramError unless a region takes and returns these types; ``what`` names it in the message."""
    takes = tuple(region.types[v] for v in region.inputs)
    if takes != inputs:
        raise ProgramError(f"{what} takes ({_listed(takes)}), but is given ({_listed(inputs)})")
    if output_types(region) != outputs:
        raise ProgramError(f"{what} returns ({_listed(output_types(region))}), but must return ({_listed(outputs)})")


def _listed(types: Sequence[TensorType]) -> str:
    return ", ".join(map(str, types))
