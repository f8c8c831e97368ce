"""Attributes of ops: immutable values that hash and compare by content."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np


class Literal:
    """A constant array that hashes and compares by its bytes (so NaN equals NaN, and -0 is not 0).

    A splat keeps one element: ``array`` has the full shape by broadcasting, and takes no memory for it.
    """

    __slots__ = ("array", "splat", "_key")

    def __init__(self, array: np.ndarray):
        array = np.asarray(array)
        flat = array.reshape(-1)
        item = flat[:1].tobytes()
        if array.size and all(s == 0 for s, n in zip(array.strides, array.shape, strict=True) if n > 1):
            self.splat = True
        else:
            self.splat = bool(array.size) and np.ascontiguousarray(flat).tobytes() == item * array.size
        self.array = np.broadcast_to(flat[:1].reshape(()), array.shape) if self.splat else np.array(array)
        content = item if self.splat else self.array.tobytes()
        self._key = (self.array.shape, self.array.dtype.str, str(self.array.dtype), self.splat, content)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        value = repr(self.array.reshape(-1)[0].item()) if self.splat else f"{self.array.size} elements"
        return f"Literal({value}, shape={self.array.shape}, dtype={self.array.dtype})"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.splat:
            return (_splat_literal, (self.array.reshape(-1)[:1].copy(), self.array.shape))
        return (Literal, (self.array,))



def _splat_literal(element: np.ndarray, shape: tuple[int, ...]) -> Literal:
    return Literal(np.broadcast_to(element.reshape(()), shape))



class Attributes(Mapping[str, Any]):
    """An immutable, hashable mapping from attribute names to hashable values."""

    __slots__ = ("_items", "_hash")

    def __init__(self, items: Mapping[str, Any] | None = None, **more: Any):
        self._items = {**(items or {}), **more}
        self._hash: int | None = None

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(tuple(sorted(self._items.items(), key=lambda kv: kv[0])))
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Attributes) and self._items == other._items

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{k}={v!r}" for k, v in sorted(self._items.items())) + "}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Attributes, (self._items,))

    def updated(self, **changes: Any) -> Attributes:
        """These attributes with some replaced or added."""
        return Attributes({**self._items, **changes})
