"""Reading the attributes of ops that rules depend on."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxlib.mlir import ir


def integers(op: Any, name: str) -> tuple[int, ...] | None:
    """An array of integers, None where it is not stated."""
    return tuple(ir.DenseI64ArrayAttr(op.attributes[name])) if name in op.attributes else None


def integer(op: Any, name: str, default: int = 0) -> int:
    """An integer; ``default`` where it is not stated."""
    return int(ir.IntegerAttr(op.attributes[name]).value) if name in op.attributes else default


def matrix(op: Any, name: str) -> np.ndarray | None:
    """Integers of a dense attribute, None where it is not stated."""
    if name not in op.attributes:
        return None
    return np.array(ir.DenseIntElementsAttr(op.attributes[name]))


def defining(value: Any) -> Any:
    """The op that makes a value, None for a block's argument."""
    return None if isinstance(value, ir.BlockArgument) else value.owner.operation
