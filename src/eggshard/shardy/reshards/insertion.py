"""Insertion of new reshards and reductions into a module, at the location of the value that they transform."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jaxlib.mlir import ir

from eggshard.program.axes import Axes
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.attributes import axis_list_text, axis_lists_text
from eggshard.shardy.module import create


def reshard(value: Any, sharding: TensorSharding, at: Any) -> Any:
    """The value, resharded."""
    return _created("sdy.reshard", value, at, sharding=str(sharding))


def all_reduce(value: Any, axes: Axes, sharding: TensorSharding, at: Any) -> Any:
    """The value, reduced along axes."""
    return _created("sdy.all_reduce", value, at, reduction_axes=axis_list_text(axes), out_sharding=str(sharding))


def replicated_to_unreduced(value: Any, axes: Axes, sharding: TensorSharding, at: Any) -> Any:
    """Create the op that makes a replicated value a partial sum: along ``axes``, all devices but one hold zeros."""
    return _created("sdy.replicated_to_unreduced", value, at, axes=axis_list_text(axes), out_sharding=str(sharding))


def sharded_to_unreduced(value: Any, axes: Iterable[Axes], sharding: TensorSharding, at: Any) -> Any:
    """Each shard, in a tensor that is zero elsewhere. axes: per dimension."""
    return _created("sdy.sharded_to_unreduced", value, at, axes=axis_lists_text(axes), out_sharding=str(sharding))


def replace_uses(value: Any, new: Any) -> None:
    """Let all uses of a value but that by ``new``'s op take ``new`` in its place."""
    value.replace_all_uses_except(new, ir.OpResult(new).owner.operation)


def _created(name: str, value: Any, at: Any, **attributes: str) -> Any:
    return create(name, [value], [value.type], attributes, at, location=value.location).results[0]
