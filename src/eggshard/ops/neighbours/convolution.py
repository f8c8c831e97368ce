"""Convolutions with any dimension numbers, padding, dilation and grouping."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from eggshard.errors import ProgramError
from eggshard.ops import numerics
from eggshard.ops.arithmetic import current
from eggshard.ops.base import PASS, PERMUTE, REDUCE, Arrays, FactorRule, OpDef, Regions, Results, Types, register
from eggshard.ops.factor_table import Dimension, FactorTable
from eggshard.ops.shapes.slicing import padded
from eggshard.ops.signatures import require_count
from eggshard.ops.windowing import Filled, Reach, Reaches, Window, Windowed, WindowForm, padding_on_windows
from eggshard.program import codec
from eggshard.program.attributes import Attributes
from eggshard.program.placement import Dim
from eggshard.program.types import TensorType, mlir_dtype, numpy_dtype


class _Layout(NamedTuple):
    """Positions of the batch (or kernel output) dimension, the feature dimension, and the spatial ones."""

    outer: int
    feature: int
    spatial: tuple[int, ...]

    @property
    def order(self) -> tuple[int, ...]:
        return (self.outer, self.feature, *self.spatial)


class _Shared(NamedTuple):
    """Which of input, kernel and output have the index of a spatial dimension that is none to slide along."""

    input: bool = False
    kernel: bool = False
    output: bool = False

    @classmethod
    def of(cls, window: Window, n: int, results: int, reverse: bool) -> _Shared:
        """As of a window that is an element, of a batch, of the kernel's free index, or of one that is summed.

        Convolutions stand for products so. What is not finite then makes no NaN of the zeros beside others' elements.
        """
        size, stride, base, dilation, low, _ = window
        if window.passes:
            return cls(input=True, output=True)
        if reverse:
            free = n == 1 and size == results and stride == dilation and low == dilation * (size - 1)
            return cls(kernel=free, output=free)
        # Elements i of the input, k of the window: base * i = stride * result + dilation * k - low.
        if n != size or low or size < 2:
            return cls()
        if results == 1:
            return cls(input=base == dilation, kernel=base == dilation)
        apart = max(base, dilation) // math.gcd(base, dilation)
        batch = results == n and base == stride + dilation and apart >= n
        return cls(batch, batch, batch)


class _Spatial(NamedTuple):
    """One spatial dimension: its window, its numbers in input, kernel and output, and the input's size."""

    window: Window
    input: int
    kernel: int
    output: int
    size: int
    reverse: bool
    shared: _Shared

    def on(self, kernel: TensorType) -> Window:
        """The window on a shard of the kernel: of a batch, or of a free index, another one where there are fewer."""
        size, (_, stride, _, dilation, *_) = kernel.shape[self.kernel], self.window
        if size == self.window.size or not (self.shared.kernel and self.shared.output):
            return self.window
        if self.shared.input:
            return Window(size, max(size - 1, 1), size)
        return self.window._replace(size=size, low=dilation * (size - 1), high=stride * (size - 1))

    @property
    def reach(self) -> Reach | None:
        """What of the input an output needs, where they do not share an index."""
        return None if any(self.shared) else self.window.reach(self.output, self.size)

    @property
    def summed_reach(self) -> Reach | None:
        """What of the input an element of the kernel meets; of a reversed one that would lie at the other end."""
        if any(self.shared) or self.reverse:
            return None
        return self.window.summed_reach(self.kernel, self.size, self.window.result_size(self.size))


class _Convolution(OpDef):
    """Sums of products of kernel taps and the inputs under them; ``dtype`` is the result's element type.

    ``dimension_numbers`` as `codec.ConvolutionDimensions` reads them. With ``feature_group_count`` G the input features
    and the output features are in G groups that do not mix; with ``batch_group_count`` the batch and the output
    features are.
    """

    name = "convolution"
    stated = ("dtype",)
    attributes = {
        "batch_group_count": codec.Integer(),
        "dimension_numbers": codec.CONVOLUTION_DIMENSIONS,
        "feature_group_count": codec.Integer(),
        "lhs_dilation": codec.Integers().optional(),
        "padding": codec.Matrix().optional(),
        "precision_config": codec.PRECISION.optional(),
        "rhs_dilation": codec.Integers().optional(),
        "window_reversal": codec.Flags().optional(),
        "window_strides": codec.Integers().optional(),
    }

    def _layouts(self, attrs: Attributes) -> tuple[_Layout, _Layout, _Layout]:
        """Return the dimension layouts of input, kernel and output."""
        n = attrs["dimension_numbers"]
        return (
            _Layout(n["input_batch_dimension"], n["input_feature_dimension"], tuple(n["input_spatial_dimensions"])),
            _Layout(n["kernel_output_feature_dimension"], n["kernel_input_feature_dimension"],
                    tuple(n["kernel_spatial_dimensions"])),
            _Layout(n["output_batch_dimension"], n["output_feature_dimension"], tuple(n["output_spatial_dimensions"])),
        )

    def _windows(self, attrs: Attributes, kernel: Sequence[int]) -> tuple[Window, ...]:
        """Per spatial dimension; attributes left out mean stride 1, no padding, no dilation."""
        rank = len(kernel)
        columns: list[Sequence[Any]] = []
        for name, default in (("window_strides", 1), ("lhs_dilation", 1), ("rhs_dilation", 1), ("padding", (0, 0)),
                              ("window_reversal", False)):
            given = attrs.get(name)
            columns.append((default,) * rank if given is None else given)
            if len(columns[-1]) != rank:
                raise ProgramError(f"{name} has {len(columns[-1])} entries for {rank} spatial dimensions")
        return tuple(Window(*sizes, *edges) for *sizes, edges, _ in zip(kernel, *columns, strict=True))

    def _spatial(self, attrs: Attributes, operands: Types) -> list[_Spatial]:
        x, kernel = operands
        ins, taps, outs = self._layouts(attrs)
        windows = self._windows(attrs, [kernel.shape[d] for d in taps.spatial])
        flipped = attrs.get("window_reversal") or (False,) * len(windows)
        dims = zip(windows, ins.spatial, taps.spatial, outs.spatial, flipped, strict=True)
        return [_Spatial(w, i, k, o, x.shape[i], reverse, _Shared.of(w, x.shape[i], w.result_size(x.shape[i]), reverse))
                for w, i, k, o, reverse in dims]

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        require_count(operands, 2)
        x, kernel = operands
        layouts = self._layouts(attrs)
        rank = x.rank
        if kernel.rank != rank or any(sorted(layout.order) != list(range(rank)) for layout in layouts):
            raise ProgramError(f"dimension numbers {attrs['dimension_numbers']} do not fit {x} and {kernel}")
        ins, taps, outs = layouts
        groups, batches = attrs["feature_group_count"], attrs["batch_group_count"]
        if groups < 1 or batches < 1 or (groups > 1 and batches > 1):
            raise ProgramError(f"feature_group_count {groups} and batch_group_count {batches}: one is 1, none below")
        features, out_features = kernel.shape[taps.feature], kernel.shape[taps.outer]
        if x.shape[ins.feature] != features * groups:
            raise ProgramError(f"{x.shape[ins.feature]} input features are not {groups} groups of {features}")
        if out_features % (groups * batches) or x.shape[ins.outer] % batches:
            raise ProgramError(f"{out_features} output features or the batch of {x.shape[ins.outer]} do not split "
                               f"into {groups * batches} groups")
        windows = self._windows(attrs, [kernel.shape[d] for d in taps.spatial])
        if any(min(window[1:4]) < 1 for window in windows):
            raise ProgramError("strides and dilations are at least 1")
        shape = [0] * rank
        shape[outs.outer], shape[outs.feature] = x.shape[ins.outer] // batches, out_features
        for window, i, o in zip(windows, ins.spatial, outs.spatial, strict=True):
            shape[o] = window.result_size(x.shape[i])
        dtype = attrs.get("dtype") or x.dtype
        numpy_dtype(dtype)
        return (TensorType(tuple(shape), dtype),)

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        (x, kernel), y = operands, results[0]
        ins, taps, outs = self._layouts(attrs)
        groups, batches = attrs["feature_group_count"], attrs["batch_group_count"]
        table = FactorTable()
        batch, depth = y.shape[outs.outer], kernel.shape[taps.feature]
        width = kernel.shape[taps.outer] // (groups * batches)
        group = table.new(groups * batches) if groups * batches > 1 else ()
        samples, features, channels = table.new(batch), table.new(depth, REDUCE, "add"), table.new(width)

        def within(size: int, dimension: Dimension) -> Dimension:
            """The dimension under the groups, which are major."""
            return group + dimension if size != 1 or not group else group

        input_: dict[int, Dimension] = {
            ins.outer: within(batch, samples) if batches > 1 else samples,
            ins.feature: within(depth, features) if groups > 1 else features,
        }
        weights: dict[int, Dimension] = {taps.feature: features, taps.outer: within(width, channels)}
        output: dict[int, Dimension] = {outs.outer: samples, outs.feature: within(width, channels)}
        for s in self._spatial(attrs, operands):
            kind = PERMUTE if not any(s.shared) else PASS if s.shared.output else REDUCE
            index = table.new(s.window.size if s.shared.kernel else s.size, kind, "add" if kind == REDUCE else "")
            has = s.shared if any(s.shared) else _Shared(input=True, output=y.shape[s.output] == s.size)
            input_[s.input] = index if has.input else table.new(s.size, PERMUTE)
            output[s.output] = index if has.output else table.new(y.shape[s.output], PERMUTE)
            if has.kernel:
                weights[s.kernel] = index
        rows = table.row(x, input_), table.row(kernel, weights)
        linear = tuple(("add", (i,)) for i, t in enumerate(operands) if numerics.keeps_sums(t.dtype, y.dtype))
        return table.rule(rows, (table.row(y, output),), linear)

    def localize(
        self, attrs: Attributes, operands: Types, results: Types, local_operands: Types, local_results: Types
    ) -> Attributes:
        ins, taps, outs = self._layouts(attrs)
        (x, kernel), y = local_operands, local_results[0]
        changes: dict[str, Any] = {}
        for count, whole, part in (
            ("feature_group_count", x.shape[ins.feature], kernel.shape[taps.feature]),
            ("batch_group_count", x.shape[ins.outer], y.shape[outs.outer]),
        ):
            if attrs[count] > 1:  # groups of nothing are as many as the kernel's outer dimension splits into
                changes[count] = whole // part if part else math.gcd(attrs[count], kernel.shape[taps.outer])
        spatial = self._spatial(attrs, operands)
        windows = [s.on(kernel) for s in spatial]
        if windows != [s.window for s in spatial]:
            columns = zip(*(w[1:4] for w in windows), strict=True)
            changes.update(zip(("window_strides", "lhs_dilation", "rhs_dilation"), columns, strict=True))
            changes["padding"] = tuple((w.low, w.high) for w in windows)
        return attrs.updated(**changes) if changes else attrs

    def reaches(self, attrs: Attributes, operands: Types, results: Types) -> Reaches:
        found = {s.input: s.reach for s in self._spatial(attrs, operands)}
        return tuple(found.get(d) for d in range(operands[0].rank)), (None,) * operands[1].rank

    def summed_reaches(self, attrs: Attributes, operands: Types, results: Types) -> Reaches:
        """Devices share out a window that spans most of the input, as those of a kernel's gradient do."""
        found = {s.input: s.summed_reach for s in self._spatial(attrs, operands)}
        return tuple(found.get(d) for d in range(operands[0].rank)), (None,) * operands[1].rank

    def window_form(
        self, attrs: Attributes, operands: Types, results: Types, local_operands: Types, local_results: Types,
        windowed: Windowed,
    ) -> WindowForm:
        spatial, part = self._spatial(attrs, operands), local_operands[1].shape
        placed = [(s.on(local_operands[1]), s.input, s.size, s.output) for s in spatial]
        padding, box = padding_on_windows(placed, windowed)
        widths = list(padding)
        for number, s in enumerate(spatial):
            if s.summed_reach is not None and part[s.kernel] < s.window.size:
                widths[number] = s.summed_reach.edges(Dim((), part[s.kernel]))
                box = (*box, (s.input, 0, s.size))
        local = self.localize(attrs, operands, results, local_operands, local_results)
        return WindowForm(local.updated(padding=tuple(widths)), (Filled(0, box, "add"),) if box else ())

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        ins, taps, outs = self._layouts(attrs)
        dtype = current().stored(attrs.get("dtype") or mlir_dtype(arrays[0].dtype))
        wide = numerics.widened(np.zeros((), dtype)).dtype
        x, kernel = (numerics.widened(a).astype(wide, copy=False) for a in arrays)
        x, kernel = np.transpose(x, ins.order), np.transpose(kernel, taps.order)
        windows = self._windows(attrs, kernel.shape[2:])
        x = padded(x, np.zeros((), wide), [(0, 0, 0)] * 2 + [w.edges for w in windows])
        reversal = attrs.get("window_reversal") or ()
        kernel = np.flip(kernel, tuple(2 + i for i, flipped in enumerate(reversal) if flipped))
        groups, batches = attrs["feature_group_count"], attrs["batch_group_count"]
        # [batch groups, batch, feature groups, features, ...]; only one kind of group is larger than 1.
        n, features, channels = x.shape[0] // batches, kernel.shape[1], kernel.shape[0]
        patches = _patches(x, windows)
        places, reach = patches.shape[2 : x.ndim], patches.shape[x.ndim :]
        patches = patches.reshape(batches, n, groups, features, math.prod(places), math.prod(reach))
        left = patches.transpose(0, 2, 1, 4, 3, 5).reshape(
            groups * batches, n * math.prod(places), features * math.prod(reach))
        right = kernel.reshape(groups * batches, channels // (groups * batches), features * math.prod(reach))
        with np.errstate(all="ignore"):
            product = current().matmul(left, right.transpose(0, 2, 1))
        out = product.reshape(groups * batches, n, math.prod(places), channels // (groups * batches))
        out = out.transpose(1, 0, 3, 2).reshape(n, channels, *places)
        return (numerics.narrowed(np.transpose(out, np.argsort(outs.order)), mlir_dtype(dtype)),)

    def flops(self, attrs: Attributes, operands: Types, results: Types) -> float:
        kernel = operands[1]
        taps = self._layouts(attrs)[1]
        depth = kernel.shape[taps.feature] * math.prod(kernel.shape[d] for d in taps.spatial)
        return 2.0 * results[0].elements * depth


def _patches(x: np.ndarray, windows: Sequence[Window]) -> np.ndarray:
    """``[batch, features, places..., taps...]``: what lies under the kernel at each place (a view)."""
    shape, strides = list(x.shape[:2]), list(x.strides[:2])
    for window, n, step in zip(windows, x.shape[2:], x.strides[2:], strict=True):
        shape.append(window.unpadded.result_size(n))
        strides.append(step * window.stride)
    for window, step in zip(windows, x.strides[2:], strict=True):
        shape.append(window.size)
        strides.append(step * window.dilation)
    return np.lib.stride_tricks.as_strided(x, shape, strides, writeable=False)


register(_Convolution())
