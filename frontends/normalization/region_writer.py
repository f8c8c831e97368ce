"""A writer of regions that replaces some ops by equivalent ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from eggshard.errors import LoweringError
from eggshard.frontends.normalization.index_maps import IndexMaps
from eggshard.ops import registry
from eggshard.ops.region_builder import RegionBuilder
from eggshard.program.program import Op, Region

#: Index tensors with more elements are left alone.
_MAX_INDICES = 1 << 20


class Form(NamedTuple):
    """How to replace an op with one result: whether it is worth a try, and the new ops' value.

    None means that there is no such form; no op may have been written then.
    """

    concerns: Callable[[Op, Constants], bool]
    write: Callable[[RegionWriter, Op], int | None]


class Constants:
    """The values of a region that are known integers, found when asked for."""

    def __init__(self, region: Region):
        self.types = region.types
        self.definitions = {v: op for op in region.ops for v in op.results}
        self._known: dict[int, np.ndarray | None] = {}

    def array(self, value: int) -> np.ndarray | None:
        """The integers or booleans that a value is for certain; None if that is not known, or not worth knowing."""
        stack = [value]
        while stack:
            v = stack[-1]
            if v not in self._known:
                op = self.definitions.get(v)
                if op is not None and self._compares_with_itself(op):
                    zeros = np.zeros(self.types[v].shape, np.int8)
                    (self._known[v],) = registry.get("compare").evaluate(op.attributes, [zeros, zeros])
                elif op is None or not self._foldable(op):
                    self._known[v] = None
                else:
                    missing = [o for o in op.operands if o not in self._known]
                    failed = any(self._known[o] is None for o in op.operands if o in self._known)
                    if missing and not failed:
                        stack.append(missing[0])
                        continue
                    self._known[v] = None if failed else self._evaluate(op)
            stack.pop()
        return self._known[value]

    def arrays(self, values: Sequence[int]) -> list[np.ndarray] | None:
        """Return the constant arrays of several values, or None unless all of them are known."""
        found = [self.array(v) for v in values]
        return None if any(a is None for a in found) else [a for a in found if a is not None]

    def uniform(self, value: int) -> bool | None:
        """What a predicate is everywhere; broadcasts are looked through."""
        op = self.definitions.get(value)
        while op is not None and op.name == "broadcast_in_dim":
            value = op.operands[0]
            op = self.definitions.get(value)
        array = self.array(value)
        if array is None or not array.size:
            return None
        return bool(array.flat[0]) if np.all(array == array.flat[0]) else None

    def _compares_with_itself(self, op: Op) -> bool:
        """Whether an op compares integers or booleans with themselves. (A NaN is not what it is.)"""
        return (op.name == "compare" and op.operands[0] == op.operands[1]
                and self.types[op.operands[0]].dtype.startswith(("i", "ui"))
                and self.types[op.results[0]].elements <= _MAX_INDICES)

    def _foldable(self, op: Op) -> bool:
        if len(op.results) != 1 or op.regions or not registry.is_pure(op.name):
            return False
        types = [self.types[v] for v in (*op.operands, *op.results)]
        return all(t.dtype.startswith(("i", "ui")) and t.elements <= _MAX_INDICES for t in types)

    def _evaluate(self, op: Op) -> np.ndarray | None:
        arrays = [a for a in (self._known[o] for o in op.operands) if a is not None]
        try:
            with np.errstate(all="ignore"):
                return registry.get(op.name).evaluate(op.attributes, arrays)[0]
        except (NotImplementedError, LoweringError):  # it has no meaning in NumPy, or none on one device
            return None


class RegionWriter(RegionBuilder):
    """Copies a region; some ops are replaced by others that compute the same."""

    def __init__(self, region: Region, forms: Mapping[str, Form]):
        self.region, self.constants, self.maps = region, Constants(region), IndexMaps(region)
        super().__init__([region.types[v] for v in region.inputs])
        self._forms = forms
        self.number = dict(zip(region.inputs, self.inputs, strict=True))

    def write(self) -> Region:
        """The copied region; the same one where there is nothing to replace."""
        wanted = frozenset(i for i, op in enumerate(self.region.ops) if self._concerned(op))
        if not wanted:
            return self.region
        for i, op in enumerate(self.region.ops):
            if i not in wanted or not self._replaced(op):
                self.copy(op, self.region.types, self.number)
        return self.build([self.number[v] for v in self.region.outputs])

    def _concerned(self, op: Op) -> bool:
        form = self._forms.get(op.name)
        return form is not None and form.concerns(op, self.constants)

    def _replaced(self, op: Op) -> bool:
        first = len(self.ops)
        value = self._forms[op.name].write(self, op)
        if value is None:
            assert len(self.ops) == first, "a form that does not hold has written ops"
            return False
        self.number[op.results[0]] = value
        for i in range(first, len(self.ops)):
            stated = op.shardings if self.ops[i].results == (value,) else ()
            self.ops[i] = replace(self.ops[i], shardings=stated, location=op.location)
        return True

    def arrange(self, x: int, order: Sequence[int], shape: Sequence[int]) -> int:
        """Dimensions of x in this order, then with unit dimensions added or dropped to give ``shape``."""
        walked = [d for d in order if self.type_of(x).shape[d] != 1]
        if walked != sorted(walked):
            x = self.op("transpose", x, permutation=tuple(order))
        return self.reshape(x, shape)

    def update(self, x: int, update: int, starts: Sequence[int]) -> int:
        """x with the box at ``starts`` set to the update, which is all of it if it has the same shape."""
        if self.type_of(x) == self.type_of(update):
            return update
        return self.op("update_slice", x, update, start_indices=tuple(int(s) for s in starts))
