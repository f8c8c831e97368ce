"""Writer of ops at data-dependent positions, with start indices that XLA can add others to.

XLA merges a dynamic slice with the dynamic slices around it, such as those that cut shards, and adds up starts that it
has not clamped (openxla/xla issue 49121). A gather or scatter of one window becomes dynamic slices, too. So starts are
clamped by an op of their own. It also takes the last start for an integer of the indices' type, which 200 rows are
not in 8 bits: indices too narrow for their dimensions are widened.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eggshard.emit.body_text import Value
from eggshard.emit.windows_text import WindowText
from eggshard.ops.shard_program import PLACE
from eggshard.ops.spelling import MlirPrinter
from eggshard.ops.windows import Windows
from eggshard.program.types import TensorType, integer_limits, numpy_dtype
from eggshard.steps.steps import Local


class IndexedText(WindowText):
    """Dynamic slices and updates, gathers and scatters."""

    def local(self, action: Local, operands: Sequence[Value]) -> list[Value]:
        """An op on shards as it is spelled, with starts in bounds."""
        if action.name not in ("dynamic_slice", "dynamic_update_slice", "gather", "scatter"):
            return self._spelled(action, operands)
        firsts = {"dynamic_slice": 1, "gather": 1, "dynamic_update_slice": 2, "scatter": len(action.result_types)}
        first, largest = firsts[action.name], max(operands[0].type.shape, default=0)
        end = first + 1 if action.name in ("gather", "scatter") else len(operands)
        wide = [self._wide(x, largest) for x in operands[first:end]]
        operands = [*operands[:first], *wide, *operands[end:]]
        if action.name == "scatter":
            return self._scatter(action, operands)
        return self._spelled(action, self._in_bounds(action, operands))

    def _wide(self, x: Value, size: int) -> Value:
        """Indices of a type that can count to this size."""
        if integer_limits(x.type.dtype)[1] >= size:
            return x
        return self.op("convert", [x], TensorType(x.type.shape, PLACE))

    def _spelled(self, action: Local, operands: Sequence[Value]) -> list[Value]:
        printer = MlirPrinter(self.fresh)
        lines, names = printer.op(action.name, action.attributes, operands, action.result_types, action.regions)
        for line in lines:
            self.line(line)
        return [Value(name, type_) for name, type_ in zip(names, action.result_types, strict=True)]

    def _in_bounds(self, action: Local, operands: Sequence[Value]) -> list[Value]:
        """The operands of a dynamic slice, update or gather."""
        shape = operands[0].type.shape
        if action.name == "gather":
            x, indices = operands
            along = action.attributes["dimension_numbers"]["start_index_map"]
            if indices.type.elements != len(along):
                return [x, indices]
            last = [shape[d] - action.attributes["slice_sizes"][d] for d in along]
            return [x, self._clamp(indices, last)]
        window = action.result_types[0].shape if action.name == "dynamic_slice" else operands[1].type.shape
        count = len(operands) - len(shape)
        room = (n - k for n, k in zip(shape, window, strict=True))
        return [*operands[:count], *(self._clamp(x, [last]) for x, last in zip(operands[count:], room, strict=True))]

    def _scatter(self, action: Local, operands: Sequence[Value]) -> list[Value]:
        """A scatter; one of a single window puts back what stood there where the window leaves the tensor."""
        count = len(action.result_types)
        xs, indices, updates = operands[:count], operands[count], operands[count + 1 :]
        windows = Windows.of_scatter(action.attributes["scatter_dimension_numbers"])
        shape, along = xs[0].type.shape, windows.index_map
        if not along or indices.type.elements != len(along) or not updates[0].type.elements:
            return self._spelled(action, operands)
        pairs = zip(windows.operand_window_dims(len(shape)), windows.window_dims, strict=True)
        walked = {d: updates[0].type.shape[w] for d, w in pairs}
        sizes = tuple(walked.get(d, 1) for d in range(len(shape)))
        last = [shape[d] - sizes[d] for d in along]
        inside = self._clamp(indices, last)
        made = self._spelled(action, [*xs, inside, *updates])

        vector = self.reshape(inside, (len(along),))
        starts = [self.constant(np.zeros((), numpy_dtype(indices.type.dtype)))] * len(shape)
        for j, d in enumerate(along):
            starts[d] = self.reshape(self.slice(vector, (j,), (j + 1,)), ())
        kept = self._all(self._equal(self.reshape(indices, (len(along),)), vector))
        out = []
        for x, y in zip(xs, made, strict=True):
            old, new = (self.dynamic_slice(v, starts, sizes) for v in (x, y))
            put = self.op("select", [kept, new, old], new.type)
            out.append(self.dynamic_update_slice(y, put, starts))
        return out

    def _equal(self, a: Value, b: Value) -> Value:
        unsigned = a.type.dtype.startswith("u")
        attributes = (
            "comparison_direction = #stablehlo<comparison_direction EQ>, "
            f"compare_type = #stablehlo<comparison_type {'UNSIGNED' if unsigned else 'SIGNED'}>"
        )
        return self.op("compare", [a, b], TensorType(a.type.shape, "i1"), attributes)

    def _all(self, flags: Value) -> Value:
        """Whether all elements of a vector are true."""
        out, *rest = (self.reshape(self.slice(flags, (j,), (j + 1,)), ()) for j in range(flags.type.elements))
        for flag in rest:
            out = self.op("and", [out, flag], TensorType((), "i1"))
        return out

    def _clamp(self, x: Value, last: Sequence[int]) -> Value:
        """Each of some indices at least 0 and at most what stands in ``last``."""
        most = integer_limits(x.type.dtype)[1]
        high = np.reshape([min(n, most) for n in last], x.type.shape).astype(numpy_dtype(x.type.dtype))
        return self.op("clamp", [self.constant(np.zeros_like(high)), x, self.constant(high)], x.type)
