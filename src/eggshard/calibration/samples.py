"""Calibration samples: every kind of collective, exchange and local op, over sizes, groups and shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from eggshard.costmodel.pricing import step_info
from eggshard.costmodel.protocol import StepInfo
from eggshard.errors import CostModelError
from eggshard.frontends.builder import ProgramBuilder, Tensor
from eggshard.ops import registry
from eggshard.placement.slabs import Slab
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType
from eggshard.steps.piece_steps import Exchange, Round
from eggshard.steps.steps import (
    Action,
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    Local,
    ReduceScatter,
)
from eggshard.steps.window_steps import HaloExchange

#: Bytes that a device holds of an array, unless asked for others: of an accelerator, and of a share of a host.
SIZES, HOST_SIZES = (tuple(1 << p for p in powers) for powers in (range(12, 29, 4), range(12, 22, 3)))
#: How many times the largest size some steps are timed at on hosts, where all would take minutes: collectives on whole
#: pieces of memory, as gradients and parameters are sent by, and what reads arrays beyond the caches.
_LARGE = 4
#: Element-wise ops of a kernel: as many as take about as long as one, which is what it takes to read and write memory.
_FUSED = 8
#: Products in a batch of them, as attention has.
_HEADS = 8
#: Rows and columns of the largest matrices multiplied.
_WIDEST = 1024
#: Rows and columns of the matrices that devices may multiply before a collective. The largest take about a millisecond
#: on hosts: most of what computing adds to a collective over a network of 1 Gbit/s is added by then.
_BEFORE = (256, 128, 64, 32)
#: Rows and columns of the images convolved.
_IMAGE = 16


@dataclass(frozen=True)
class Sample:
    """A step: an action on a device's shards of these types.

    fused: how often it is done to its own result, in what a compiler makes one kernel of; its price is a part of that.
    """

    mesh: Mesh
    action: Action
    operands: tuple[TensorType, ...]
    fused: int = 1

    @cached_property
    def step(self) -> StepInfo:
        """The step as a cost model sees it."""
        return step_info(self.mesh, self.action, self.operands)

    @cached_property
    def results(self) -> tuple[TensorType, ...]:
        return self.action.result(self.mesh, self.operands)


@dataclass(frozen=True)
class Groups:
    """How the devices are grouped: so many to a group, whose numbers lie ``stride`` apart.

    per_process: so many neighbours in a group are devices of one process.
    """

    devices: int
    size: int
    stride: int = 1
    per_process: int = 1

    @property
    def mesh(self) -> Mesh:
        """A mesh along whose axis ``group`` each of the groups lies."""
        outer = {"rest": self.devices // self.size // self.stride, "group": self.size}
        return Mesh(outer if self.stride == 1 else {**outer, "beside": self.stride})

    def pairs(self, within: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        """Pairs of positions in a group as pairs of devices, in every group."""
        span = self.size * self.stride
        return tuple((first + beside + s * self.stride, first + beside + t * self.stride)
                     for first in range(0, self.devices, span) for beside in range(self.stride) for s, t in within)


def samples(
    devices: int, sizes: Sequence[int] = SIZES, groups: Sequence[int] = (), per_process: int = 0,
    large: bool = False,
) -> list[Sample]:
    """The steps to time on so many devices: each kind at each size and for each group size.

    sizes: bytes of f32 per device. groups: group sizes (by default all that divide the number of devices).
    per_process: devices of each process where there are several: groups of one device of each are timed, too. large:
    at four times the largest size, too, collectives on whole pieces of memory, and local ops other than products.
    """
    groups = tuple(groups) or tuple(g for g in range(2, devices + 1) if devices % g == 0)
    bad = [g for g in groups if g < 2 or devices % g]
    if bad:
        raise CostModelError(f"groups of {bad} do not divide {devices} devices; give numbers from 2 that do")
    if not sizes or min(sizes) < 4 * max(groups, default=1) ** 2:
        raise CostModelError(f"sizes {list(sizes)} are bytes per device, at least 4 for each pair of a group's devices")
    out: list[Sample] = []
    several = 1 < per_process < devices
    grouped = [Groups(devices, group, per_process=per_process if several else 1) for group in groups]
    if several:
        grouped.append(Groups(devices, devices // per_process, per_process))
    for size in sizes:
        for each in grouped:
            for found in (_whole, _in_pieces):
                out += (Sample(each.mesh, action, (type_,)) for action, type_ in found(each, size // 4))
        out += _local(Mesh({"rest": 1, "group": devices}), size // 4)
    if large:
        elements = max(sizes) // 4 * _LARGE
        out += (Sample(each.mesh, action, (type_,)) for each in grouped for action, type_ in _whole(each, elements))
        out += _local(Mesh({"rest": 1, "group": devices}), elements, products=False)
    return out


def computing(mesh: Mesh) -> Iterator[Sample]:
    """What devices may do before they communicate, from the longest on."""
    for side in _BEFORE:
        yield _of(mesh, lambda b, x, y: b.dot(x, y), ((side, side),) * 2)


def _matrix(group: int, elements: int) -> TensorType:
    """A matrix as square as can be, whose rows and columns a group divides."""
    rows = group
    while 4 * rows * rows <= elements:
        rows *= 2
    return TensorType((rows, elements // rows // group * group), "f32")


def _whole(groups: Groups, elements: int) -> Iterator[tuple[Action, TensorType]]:
    """Collectives over ``group`` along the rows of a matrix as square as can be: whole pieces of memory."""
    whole = _matrix(groups.size, elements)
    # Every device of a process sends to another one, if any does.
    away = groups.per_process if groups.size > groups.per_process else 1
    ring = tuple((i, (i + away) % groups.size) for i in range(groups.size))
    yield AllReduce(("group",), "add"), whole
    yield CollectivePermute(groups.pairs(ring), ("group",)), whole
    yield from _along(groups, 0, whole)
    yield _exchange(groups, 0, whole), whole


def _in_pieces(groups: Groups, elements: int) -> Iterator[tuple[Action, TensorType]]:
    """Those along its columns, whose parts are many short pieces, and along the middle of an array of rank 3: few long
    ones; and exchanges of halos."""
    group, whole = groups.size, _matrix(groups.size, elements)
    yield from _along(groups, 1, whole)
    yield from _along(groups, 1, TensorType((group, group, elements // group // group), "f32"))
    yield _exchange(groups, 1, whole), whole
    for dim in (0, 1):
        yield _halo(group, dim, whole), whole


def _along(groups: Groups, dim: int, array: TensorType) -> Iterator[tuple[Action, TensorType]]:
    along = ((dim, ("group",)),)
    yield AllGather(along), _part(array, dim, groups.size)
    yield ReduceScatter(along, "add"), array
    yield AllToAll(((1 - dim, ("group",)),), along), array


def _part(whole: TensorType, dim: int, group: int) -> TensorType:
    return whole.with_shape(tuple(n // group if d == dim else n for d, n in enumerate(whole.shape)))


def _exchange(groups: Groups, dim: int, whole: TensorType) -> Exchange:
    """Every device hands its part number i to the device i places on."""
    group = groups.size
    piece = _part(whole, dim, group).shape

    def at(part: int) -> tuple[tuple[int, ...], ...]:
        return (tuple(part * piece[dim] if d == dim else 0 for d in range(whole.rank)),) * groups.devices

    rounds = tuple(Round(groups.pairs([(i, (i + k) % group) for i in range(group)]), at(k), at(k))
                   for k in range(group))
    return Exchange(piece, whole.shape, rounds[1:], rounds[:1], ("group",))


def _halo(group: int, dim: int, whole: TensorType) -> HaloExchange:
    """A quarter of the array from the neighbours on either side."""
    n = whole.shape[dim]
    width = max(1, n // 4)
    up = tuple((i, (i + 1) % group) for i in range(group))
    rounds = (Slab(up, width, (n - width,) * group, (0,) * group),
              Slab(tuple((t, s) for s, t in up), width, (0,) * group, (n + width,) * group))
    return HaloExchange(dim, ("group",), n + 2 * width, (width,) * group, rounds)


def _local(mesh: Mesh, elements: int, products: bool = True) -> Iterator[Sample]:
    """Ops on all devices at once, as plans run them.

    What only cuts is left out: it is read in place.
    """
    side = 4
    while 4 * side * side <= elements:
        side *= 2
    narrow = max(2, side // 16)
    square, deep, wide, tall, flat = (
        (side, side), (side // 2, 2 * side), (2 * side, side // 2), (side, narrow), (narrow, side))
    cases: list[tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...]]] = [
        (lambda b, x: b.tanh(x), (square,)),
        (lambda b, x: b.op("wrap", x, dimension=1, lhs=1, rhs=1), (square,)),
        (lambda b, x, y: b.op("concatenate", x, y, dimension=1), (square, square)),
        (lambda b, x: b.sum(x, 0), (square,)),
        (lambda b, x: b.sum(x, 1), (square,)),
        (lambda b, x: b.op("fft", x, fft_type="RFFT", fft_length=x.shape[1:]), (square,)),
    ]
    if products and side <= _WIDEST:
        cases += [(lambda b, x, y: b.dot(x, y), shapes) for shapes in (
            (square, square), (deep, wide), (wide, deep), (square, tall), (flat, square),
            ((_HEADS, side // 4, narrow), (_HEADS, narrow, side // 4)))]
        # The gradients of both factors, whose compilers may have to transpose one.
        cases += [(lambda b, x, y, dim=dim: b.dot_general(x, y, ((dim,), (dim,))), (square, square)) for dim in (0, 1)]
        few, some, many = ((max(1, elements // (_IMAGE * _IMAGE * features)), _IMAGE, _IMAGE, features)
                           for features in (8, 16, 32))
        cases += [
            *((lambda b, x, w: _convolution(b, x, w, (0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2)),
               (images, (3, 3, images[-1], images[-1]))) for images in (few, many)),
            # The gradient of the filters.
            (lambda b, x, y: _convolution(b, x, y, (3, 0, 1, 2), (3, 0, 1, 2), (2, 3, 0, 1)), (some, some)),
        ]
    yield _of(mesh, lambda b, x, y: b.add(x, y), (square, square), _FUSED)
    for build, shapes in cases:
        yield _of(mesh, build, shapes)


def _convolution(
    b: ProgramBuilder, x: Tensor, kernel: Tensor, of_input: tuple[int, ...], of_kernel: tuple[int, ...],
    of_output: tuple[int, ...],
) -> Tensor:
    """A convolution padded by one on all sides; where batch, features, rows and columns of its tensors are, of a kernel
    the output features in place of the batch."""
    names = (("input_batch", "input_feature", "input_spatial"),
             ("kernel_output_feature", "kernel_input_feature", "kernel_spatial"),
             ("output_batch", "output_feature", "output_spatial"))
    numbers: dict[str, int | tuple[int, ...]] = {}
    for (outer, feature, spatial), at in zip(names, (of_input, of_kernel, of_output), strict=True):
        numbers |= {f"{outer}_dimension": at[0], f"{feature}_dimension": at[1], f"{spatial}_dimensions": at[2:]}
    return b.op("convolution", x, kernel, batch_group_count=1, feature_group_count=1, dimension_numbers=numbers,
                padding=((1, 1), (1, 1)))


def _of(mesh: Mesh, build: Callable[..., Tensor], shapes: Sequence[tuple[int, ...]], fused: int = 1) -> Sample:
    """An op on operands of these shapes."""
    builder = ProgramBuilder()
    builder.output(build(builder, *[builder.input(shape) for shape in shapes]))
    program = builder.build()
    (op,) = program.region.ops
    given, made = program.input_types, program.output_types
    flops = registry.get(op.name).flops(op.attributes, given, made)
    return Sample(mesh, Local(op.name, op.attributes, made, op.regions, flops), given, fused)
