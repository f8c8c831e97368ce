"""Checks of the regions that ops carry."""

from __future__ import annotations

from collections.abc import Sequence

from eggshard.errors import ProgramError
from eggshard.ops.base import Types
from eggshard.program.program import Region
from eggshard.program.types import TensorType


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
