"""A builder of programs by hand, op by op.

    b = ProgramBuilder(mesh={"x": 4, "y": 2})
    x = b.input((1024, 512), "f32", ("x", None))
    w = b.input((512, 256), "f32", (None, "y"))
    b.output(b.tanh(x @ w) * 2, ("x", "y"))
    program = b.build()
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partialmethod
from typing import Any

import numpy as np

from eggshard.errors import ProgramError, ShardingError
from eggshard.ops import registry
from eggshard.ops.region_builder import RegionBuilder
from eggshard.program import monoids
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.codec import COMPARISON_DIRECTION, REQUIRED
from eggshard.program.mesh import Mesh
from eggshard.program.program import Program, Region
from eggshard.program.sharding import Sharding, gather_cuts
from eggshard.program.types import TensorType, is_float, mlir_dtype, numpy_dtype, static_shape

Scalar = bool | int | float | complex | np.generic


def _operator(name: str, reflected: bool = False) -> Callable[[Tensor, Tensor | Scalar], Tensor]:
    """The method of a tensor for an operator, which adds an op; reflected: the tensor is on the right."""

    def method(self: Tensor, other: Tensor | Scalar) -> Tensor:
        operands = (other, self) if reflected else (self, other)
        return self.builder._elementwise(*operands, op_name=name)

    return method


class Tensor:
    """A value of a program being built. Arithmetic with tensors of its shape and type, and with scalars, adds ops."""

    __slots__ = ("builder", "id")
    #: NumPy must not take over arithmetic between its scalars and tensors.
    __array_ufunc__ = None

    def __init__(self, builder: ProgramBuilder, id_: int):
        self.builder, self.id = builder, id_

    @property
    def type(self) -> TensorType:
        return self.builder._region.types[self.id]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> str:
        return self.type.dtype

    __add__, __radd__ = _operator("add"), _operator("add", reflected=True)
    __sub__, __rsub__ = _operator("subtract"), _operator("subtract", reflected=True)
    __mul__, __rmul__ = _operator("multiply"), _operator("multiply", reflected=True)
    __truediv__, __rtruediv__ = _operator("divide"), _operator("divide", reflected=True)
    __pow__ = _operator("power")

    def __neg__(self) -> Tensor:
        return self.builder.negate(self)

    def __matmul__(self, other: Tensor) -> Tensor:
        return self.builder.dot(self, other)

    def __repr__(self) -> str:
        return f"Tensor(%{self.id}: {self.type})"


class ProgramBuilder:
    """Collects inputs, ops and outputs; `build` makes the Program. Shardings are whatever `Sharding.of` takes."""

    def __init__(self, mesh: Any = None, name: str = "main"):
        self.mesh = Mesh({}) if mesh is None else Mesh.of(mesh)
        self.name = name
        self._region = RegionBuilder()
        self._inputs: list[tuple[int, Sharding | None, str]] = []
        self._outputs: list[tuple[int, Sharding | None, str]] = []
        self._constraints: list[Sharding] = []

    # Boundary.

    def input(self, shape: Sequence[int], dtype: Any = "f32", sharding: Any = None, name: str = "") -> Tensor:
        """An input; without a sharding it comes replicated."""
        name = name or f"arg{len(self._inputs)}"
        try:
            type_ = TensorType(static_shape(shape), mlir_dtype(dtype))
        except ProgramError as error:
            raise ProgramError(f"input {name}: {error}") from None
        stated = self._sharding(sharding, type_, f"input {name}")
        self._region.types.append(type_)
        tensor = Tensor(self, len(self._region.types) - 1)
        self._inputs.append((tensor.id, stated, name))
        return tensor

    def output(self, tensor: Tensor, sharding: Any = None, name: str = "") -> None:
        """A further output; without a sharding it is placed as is cheapest."""
        value = self._own(tensor)
        name = name or f"result{len(self._outputs)}"
        stated = self._sharding(sharding, tensor.type, f"output {name}")
        self._outputs.append((value, stated, name))

    def constrain(self, tensor: Tensor, sharding: Any) -> Tensor:
        """The tensor, which is to be sharded so at this place."""
        stated = self._sharding(sharding, tensor.type, "a constraint")
        if stated is None:
            raise ShardingError("a constraint needs a sharding; leave it out instead")
        self._constraints.append(stated)
        return self.op("sharding_constraint", tensor, sharding=stated)

    def build(self) -> Program:
        """The program of everything added so far."""
        if not self._outputs:
            raise ProgramError("the program has no outputs; call output(tensor) before build()")
        inputs = [v for v, _, _ in self._inputs]
        # Inputs may be added between ops, but a region's come first.
        ordered = RegionBuilder([self._region.types[v] for v in inputs])
        values = dict(zip(inputs, ordered.inputs, strict=True))
        for op in self._region.ops:
            ordered.copy(op, self._region.types, values)
        region = ordered.build([values[v] for v, _, _ in self._outputs])
        ins, outs = (tuple(s for _, s, _ in side) for side in (self._inputs, self._outputs))
        cuts = gather_cuts([*ins, *outs, *self._constraints], self.mesh)
        return Program(
            self.mesh.refined(cuts) if cuts else self.mesh, region, ins, outs, self.name,
            tuple(name for _, _, name in self._inputs), tuple(name for _, _, name in self._outputs),
        )

    # Ops.

    def op(self, name: str, *operands: Tensor | Scalar, regions: Sequence[Region] = (), **attributes: Any) -> Tensor:
        """The only result of any op of the registry; scalars and rank-0 tensors become tensors of the others' shape."""
        results = self.ops(name, *operands, regions=regions, **attributes)
        if len(results) != 1:
            raise ProgramError(f"{name} has {len(results)} results; use ops() for it")
        return results[0]

    def ops(
        self, name: str, *operands: Tensor | Scalar, regions: Sequence[Region] = (), **attributes: Any
    ) -> tuple[Tensor, ...]:
        """All results of any op of the registry."""
        tensors = [t if isinstance(t, Tensor) else self._scalar(name, t, operands) for t in operands]
        values = [self._own(t) for t in tensors]
        defaults = {k: c.default for k, c in registry.get(name).attributes.items() if c.default is not REQUIRED}
        added = self._region.add(name, values, Attributes(defaults | attributes), regions)
        return tuple(Tensor(self, v) for v in added)

    def constant(self, value: Any, dtype: Any = None, shape: Sequence[int] | None = None) -> Tensor:
        """A constant array; with ``shape`` one value everywhere. Python numbers are f32, i32 or i1 unless told."""
        array = np.asarray(value)
        if dtype is None and not isinstance(value, (np.ndarray, np.generic)):
            dtype = {"f": "f32", "i": "i32", "c": "complex<f32>"}.get(array.dtype.kind)
        array = array if dtype is None else array.astype(numpy_dtype(mlir_dtype(dtype)))
        if shape is not None:
            array = np.broadcast_to(array, tuple(shape))
        return self.op("constant", value=Literal(array))

    def iota(self, shape: Sequence[int], dimension: int, dtype: Any = "i32") -> Tensor:
        """Each element's index along a dimension."""
        return self.op("iota", shape=tuple(shape), dtype=mlir_dtype(dtype), iota_dimension=dimension)

    def _elementwise(self, *operands: Tensor | Scalar, op_name: str) -> Tensor:
        shapes = {t.shape for t in operands if isinstance(t, Tensor) and t.shape}
        if len(shapes) > 1:
            shown = ", ".join(str(t.type) if isinstance(t, Tensor) else repr(t) for t in operands)
            raise ProgramError(f"{op_name}({shown}): the shapes differ; make them equal with broadcast(x, shape, dims)")
        shape = next(iter(shapes), ())
        return self.op(op_name, *(self.broadcast(t, shape) if isinstance(t, Tensor) and t.shape != shape else t
                                  for t in operands))

    add = partialmethod(_elementwise, op_name="add")
    subtract = partialmethod(_elementwise, op_name="subtract")
    multiply = partialmethod(_elementwise, op_name="multiply")
    divide = partialmethod(_elementwise, op_name="divide")
    power = partialmethod(_elementwise, op_name="power")
    maximum = partialmethod(_elementwise, op_name="maximum")
    minimum = partialmethod(_elementwise, op_name="minimum")
    negate = partialmethod(_elementwise, op_name="negate")
    abs = partialmethod(_elementwise, op_name="abs")
    exp = partialmethod(_elementwise, op_name="exponential")
    log = partialmethod(_elementwise, op_name="log")
    tanh = partialmethod(_elementwise, op_name="tanh")
    logistic = partialmethod(_elementwise, op_name="logistic")
    sin = partialmethod(_elementwise, op_name="sine")
    cos = partialmethod(_elementwise, op_name="cosine")
    sqrt = partialmethod(_elementwise, op_name="sqrt")
    rsqrt = partialmethod(_elementwise, op_name="rsqrt")
    select = partialmethod(_elementwise, op_name="select")

    def compare(self, lhs: Tensor | Scalar, direction: str, rhs: Tensor | Scalar) -> Tensor:
        """lhs direction rhs, of EQ, NE, LT, LE, GT, GE."""
        COMPARISON_DIRECTION.encode(direction)
        tensor = lhs if isinstance(lhs, Tensor) else rhs
        kind = "SIGNED"
        if isinstance(tensor, Tensor):
            unsigned = tensor.dtype.startswith("ui") or tensor.dtype == "i1"
            kind = "FLOAT" if is_float(tensor.dtype) else "UNSIGNED" if unsigned else "SIGNED"
        return self.op("compare", lhs, rhs, comparison_direction=direction, compare_type=kind)

    def convert(self, x: Tensor, dtype: Any) -> Tensor:
        """Convert every element of x to another element type."""
        return self.op("convert", x, dtype=mlir_dtype(dtype))

    def dot(self, lhs: Tensor, rhs: Tensor) -> Tensor:
        """Matrix product: lhs's last dimension with rhs's last but one; equal leading dimensions are batched."""
        batch = tuple(range(max(rhs.type.rank - 2, 0)))
        if lhs.type.rank <= len(batch) or not rhs.shape or lhs.shape[: len(batch)] != rhs.shape[: len(batch)]:
            raise ProgramError(
                f"dot({lhs.type}, {rhs.type}): needs the same leading dimensions on both sides; "
                "use dot_general(lhs, rhs, contract, batch) for other contractions"
            )
        contract = ((lhs.type.rank - 1,), (len(batch),))
        return self.dot_general(lhs, rhs, contract, (batch, batch))

    def dot_general(self, lhs: Tensor, rhs: Tensor, contract: tuple[Sequence[int], Sequence[int]],
                    batch: tuple[Sequence[int], Sequence[int]] = ((), ()), dtype: Any = None) -> Tensor:
        """Contraction of dimensions ``contract`` = (of lhs, of rhs), mapped over ``batch``.

        The result has the batch dimensions, then the other ones of lhs, then of rhs, and lhs's element type.
        """
        numbers = Attributes(
            lhs_batching_dimensions=tuple(batch[0]), rhs_batching_dimensions=tuple(batch[1]),
            lhs_contracting_dimensions=tuple(contract[0]), rhs_contracting_dimensions=tuple(contract[1]),
        )
        result = lhs.dtype if dtype is None else mlir_dtype(dtype)
        return self.op("dot_general", lhs, rhs, dot_dimension_numbers=numbers, dtype=result)

    def transpose(self, x: Tensor, permutation: Sequence[int] | None = None) -> Tensor:
        """Dimension i of the result is dimension permutation[i] of x; reversed by default."""
        order = range(x.type.rank)[::-1] if permutation is None else permutation
        return self.op("transpose", x, permutation=tuple(order))

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """Reshape x in row-major order; one size may be -1 and is inferred."""
        sizes = tuple(shape)
        if sizes.count(-1) == 1:
            rest = math.prod(n for n in sizes if n != -1)
            sizes = tuple(x.type.elements // max(rest, 1) if n == -1 else n for n in sizes)
        return self.op("reshape", x, shape=sizes)

    def broadcast(self, x: Tensor, shape: Sequence[int], dims: Sequence[int] | None = None) -> Tensor:
        """x repeated to ``shape``; its dimension i is dimension dims[i] of the result, the last ones by default."""
        rank, sizes = x.type.rank, tuple(shape)
        where = tuple(range(len(sizes) - rank, len(sizes))) if dims is None else tuple(dims)
        return self.op("broadcast_in_dim", x, broadcast_dimensions=where, shape=sizes)

    def reduce(self, x: Tensor, monoid: str, dims: int | Sequence[int] | None = None, keep: bool = False) -> Tensor:
        """All elements along ``dims`` (all by default) combined by add, mul, max, min, and, or, xor."""
        monoids.monoid(monoid)
        every = range(x.type.rank) if dims is None else (dims,) if isinstance(dims, int) else dims
        along = tuple(sorted(d % x.type.rank if -x.type.rank <= d < 0 else d for d in every))
        out = self.op("reduce", x, dimensions=along, monoid=monoid)
        return self.reshape(out, [1 if i in along else n for i, n in enumerate(x.shape)]) if keep else out

    def sum(self, x: Tensor, dims: int | Sequence[int] | None = None, keep: bool = False) -> Tensor:
        """The sum along some dimensions; ``keep`` leaves them with size 1."""
        return self.reduce(x, "add", dims, keep)

    def max(self, x: Tensor, dims: int | Sequence[int] | None = None, keep: bool = False) -> Tensor:
        """The maximum along some dimensions; ``keep`` leaves them with size 1."""
        return self.reduce(x, "max", dims, keep)

    def slice(self, x: Tensor, starts: Sequence[int], limits: Sequence[int],
              strides: Sequence[int] | None = None) -> Tensor:
        """Indices starts[i], starts[i] + strides[i], ... below limits[i] of each dimension."""
        steps = (1,) * x.type.rank if strides is None else tuple(strides)
        return self.op("slice", x, start_indices=tuple(starts), limit_indices=tuple(limits), strides=steps)

    def pad(self, x: Tensor, low: Sequence[int], high: Sequence[int], value: Scalar = 0,
            interior: Sequence[int] | None = None) -> Tensor:
        """x with ``value`` around it, and ``interior`` of it between neighbours; negative padding cuts off."""
        between = (0,) * x.type.rank if interior is None else tuple(interior)
        fill = self.constant(value, x.dtype)
        return self.op("pad", x, fill, edge_padding_low=tuple(low), edge_padding_high=tuple(high),
                       interior_padding=between)

    def concatenate(self, tensors: Sequence[Tensor], dimension: int) -> Tensor:
        """Tensors one after the other along a dimension."""
        return self.op("concatenate", *tensors, dimension=dimension)

    def reverse(self, x: Tensor, dims: Sequence[int]) -> Tensor:
        """x with the order of indices reversed along some dimensions."""
        return self.op("reverse", x, dimensions=tuple(dims))

    # Helpers.

    def _own(self, tensor: Tensor) -> int:
        if not isinstance(tensor, Tensor):
            raise ProgramError(f"{tensor!r} is not a tensor of this builder; make it one with constant()")
        if tensor.builder is not self:
            raise ProgramError(f"{tensor!r} belongs to another builder; a program uses its own tensors only")
        return tensor.id

    def _scalar(self, name: str, value: Any, operands: Sequence[Any]) -> Tensor:
        """A scalar operand as a splat of the shape and type of the op's (last) tensor operand."""
        like = [t for t in operands if isinstance(t, Tensor)]
        array = np.asarray(value)
        if not like or array.ndim or array.dtype.kind not in "biufcV":
            raise ProgramError(f"{name}: operand {value!r} is neither a tensor nor a scalar beside a tensor; "
                               "use input() or constant()")
        dtype = like[-1].dtype
        exact = dtype.startswith("complex") or (is_float(dtype) and array.dtype.kind != "c")
        if not exact and (array.dtype.kind not in "biu" or array.astype(numpy_dtype(dtype)) != array):
            raise ProgramError(f"{name}: scalar {value!r} is not a value of {dtype}; convert the tensor first")
        return self.constant(value, dtype, like[-1].shape)

    def _sharding(self, spec: Any, type_: TensorType, where: str) -> Sharding | None:
        if spec is None:
            return None
        try:
            sharding = Sharding.of(spec, type_.rank, self.mesh)
        except ShardingError as error:
            raise ShardingError(f"{where} ({type_}): {error}") from None
        sharding.validate(self.mesh, type_, where)
        return sharding
