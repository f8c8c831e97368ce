"""What steps take on the devices present: collectives, halo exchanges and local ops, timed by JAX.

A step runs some number of times in a loop on the device, each on what the one before left, and once; the difference is
what the others took. All cases are timed in turn, several times over, so that whatever else the machine does falls on
all of them; the median counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eggshard.costmodel.protocol import StepInfo
from eggshard.costmodel.table import Measured
from eggshard.errors import CostModelError
from eggshard.program.mesh import Mesh

#: Bytes that a device holds of an array, unless asked for others: of an accelerator, and of a share of a host.
SIZES, HOST_SIZES = (tuple(1 << p for p in range(10, most + 1, 2)) for most in (28, 22))
#: Seconds that a loop takes at least, and times that it runs at most.
_SPAN, _MOST = 4e-3, 256
#: Times that a case without a time is timed again.
_TRIES = 4
#: Rows and columns of the largest matrices multiplied.
_WIDEST = 1024


@dataclass
class Case:
    """One step to time. body: what a device does with its array, giving one of the same shape. size: its elements."""

    step: StepInfo
    body: Callable[[Any], Any]
    shape: tuple[int, ...]
    groups: int
    loop: Any = None
    operand: Any = None
    times: int = 0
    seconds: list[float] = field(default_factory=list)


def cases(devices: int, sizes: Sequence[int] = SIZES, groups: Sequence[int] = ()) -> list[Case]:
    """The steps to time on so many devices: each kind at each size and for each group size.

    sizes: bytes of f32 per device. groups: group sizes (by default all that divide the number of devices).
    """
    groups = tuple(groups) or tuple(g for g in range(2, devices + 1) if devices % g == 0)
    bad = [g for g in groups if g < 2 or devices % g]
    if bad:
        raise CostModelError(f"groups of {bad} do not divide {devices} devices; give numbers from 2 that do")
    if not sizes or min(sizes) < 4 * max(groups, default=1) ** 2:
        raise CostModelError(f"sizes {list(sizes)} are bytes per device, at least 4 for each pair of a group's devices")
    out = []
    for size in sizes:
        for group in groups:
            out += _collectives(devices, group, size)
        out += _local(devices, size)
    return out


def measure(
    found: Sequence[Case], devices: Sequence[Any], repeats: int = 7, advance: Callable[[str], None] = lambda what: None
) -> list[Measured]:
    """The seconds of each case on these devices; advance: called with a case's kind whenever it was run."""
    import jax

    operands: dict[tuple[int, tuple[int, ...]], Any] = {}
    for case in found:
        _build(case, devices, operands)
        jax.block_until_ready(case.loop(case.operand, 1))
        once = _timed(case, 1)
        case.times = 1
        while (span := _timed(case, case.times + 1) - once) < _SPAN and case.times < _MOST:
            case.times = min(_MOST, max(2 * case.times, int(case.times * 0.5 * _SPAN / max(span, 1e-6))))
        advance(case.step.op or case.step.kind)
    rng = np.random.default_rng(0)
    for _ in range(repeats):
        for i in rng.permutation(len(found)):
            case = found[i]
            case.seconds.append((_timed(case, case.times + 1) - _timed(case, 1)) / case.times)
            advance(case.step.op or case.step.kind)
    for case in found:
        for _ in range(_TRIES):  # what took no time at all was lost in what else the machine did
            if np.median(case.seconds) > 0:
                break
            case.times *= 4
            case.seconds = [(_timed(case, case.times + 1) - _timed(case, 1)) / case.times for _ in range(repeats)]
    medians = [(case.step, float(np.median(case.seconds))) for case in found]
    return [(step, seconds) for step, seconds in medians if seconds > 0]


def rounds(repeats: int) -> int:
    """How often `measure` runs each case."""
    return repeats + 1


def _timed(case: Case, times: int) -> float:
    began = time.perf_counter()
    case.loop(case.operand, times).block_until_ready()
    return time.perf_counter() - began


def _build(case: Case, devices: Sequence[Any], operands: dict[tuple[int, tuple[int, ...]], Any]) -> None:
    import jax
    import jax.numpy as jnp

    grid = np.array(devices).reshape(-1, case.groups)
    mesh = jax.sharding.Mesh(grid, ("rest", "group"))
    spec = jax.sharding.PartitionSpec(("rest", "group"))
    sharding = jax.sharding.NamedSharding(mesh, spec)
    key = (case.groups, case.shape)
    if key not in operands:
        whole = (len(devices) * case.shape[0], *case.shape[1:])
        operands[key] = jax.device_put(jnp.zeros(whole, jnp.float32), sharding)

    def repeated(array: Any, times: Any) -> Any:
        return jax.lax.fori_loop(0, times, lambda _, carried: case.body(carried), array)

    inside = jax.shard_map(repeated, mesh=mesh, in_specs=(spec, jax.sharding.PartitionSpec()), out_specs=spec,
                           check_vma=False)
    case.loop, case.operand = jax.jit(inside), operands[key]


def _collectives(devices: int, group: int, size: int) -> list[Case]:
    from jax import lax

    mesh = Mesh({"rest": devices // group, "group": group})
    n = size // 4
    up = [(i, (i + 1) % group) for i in range(group)]
    down = [(target, source) for source, target in up]

    def gather(array: Any) -> Any:
        return lax.dynamic_slice(lax.all_gather(array, "group", tiled=True), (1,), (n // group,))

    def reduce(array: Any) -> Any:
        return lax.dynamic_update_slice(array, lax.psum(array, "group")[:1], (0,))

    def scatter(array: Any) -> Any:
        return lax.dynamic_update_slice(array, lax.psum_scatter(array, "group", tiled=True), (0,))

    def exchange(array: Any) -> Any:
        return lax.all_to_all(array, "group", 0, 0, tiled=True)

    def permute(array: Any) -> Any:
        return lax.ppermute(array, "group", up)

    def halo(array: Any) -> Any:
        half = n // 2
        low, high = lax.ppermute(array[half:], "group", up), lax.ppermute(array[:half], "group", down)
        return lax.dynamic_update_slice(lax.dynamic_update_slice(array, low, (0,)), high, (half,))

    def step(kind: str, wire: float, messages: int = 1, memory: float = 2.0, hops: int = 0) -> StepInfo:
        return StepInfo(kind, mesh, axes=("group",), group=group, wire_bytes=wire, messages=messages,
                        memory_bytes=memory * size, hops=hops)

    part = size * (group - 1) / group
    return [
        Case(step("all-gather", part, memory=1 + 1 / group), gather, (n // group,), group),
        Case(step("reduce-scatter", part, memory=1 + 1 / group), scatter, (n,), group),
        Case(step("all-reduce", 2 * part), reduce, (n,), group),
        Case(step("all-to-all", part), exchange, (n,), group),
        Case(step("collective-permute", float(size)), permute, (n,), group),
        Case(step("halo-exchange", float(size), messages=2, hops=2), halo, (n,), group),
    ]


def _local(devices: int, size: int) -> list[Case]:
    """Local ops on all devices at once, as plans run them."""
    import jax.numpy as jnp
    from jax import lax

    mesh, n = Mesh({"group": devices}), size // 4
    side = max(4, int(n ** 0.5))
    square = 4.0 * side * side

    def reduced(array: Any) -> Any:
        return lax.dynamic_update_slice(array, jnp.sum(array, 0)[None], (0, 0))

    def step(op: str, flops: float, memory: float) -> StepInfo:
        return StepInfo("local", mesh, op=op, flops=flops, memory_bytes=memory)

    out = [
        Case(step("add", float(n), 2.0 * size), lambda array: array + 1.0, (n,), devices),
        Case(step("tanh", float(n), 2.0 * size), jnp.tanh, (n,), devices),
        Case(step("reduce", float(side * side), square), reduced, (side, side), devices),
    ]
    if side <= _WIDEST:
        out.append(Case(step("dot_general", 2.0 * side ** 3, 3 * square), lambda array: array @ array, (side, side),
                        devices))
    return out
