"""Fabrics: the wiring of the devices, or groups of devices, on one level of a machine.

Every fabric has the bandwidth of a link (bytes per second, one way) and the latency of a message over it (seconds). A
link of a ring or a torus joins neighbours, one of a full mesh joins a pair, and one of a switch or a fat tree is the
port of a device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from eggshard.errors import CostModelError


@dataclass(frozen=True)
class Fabric:
    """What all fabrics have. bandwidth: bytes per second, one way, of a link. latency: seconds per message or hop.

    efficiency: the part of the bandwidth that long messages reach, above 0 to 1.
    """

    kind: ClassVar[str] = ""
    bandwidth: float
    latency: float
    efficiency: float = 1.0

    def __post_init__(self) -> None:
        where = type(self).__name__
        if not self.bandwidth > 0:
            raise CostModelError(f"{where}: bandwidth is bytes per second, above zero; got {self.bandwidth}")
        if not (self.latency >= 0 and math.isfinite(self.latency)):
            raise CostModelError(f"{where}: latency is seconds, finite and not negative; got {self.latency}")
        if not 0 < self.efficiency <= 1:
            raise CostModelError(f"{where}: efficiency is a part, above 0 to 1; got {self.efficiency}")

    @property
    def rate(self) -> float:
        """Bytes per second that a link carries one way."""
        return self.bandwidth * self.efficiency

    def shape(self, units: int, mesh: Sequence[int]) -> tuple[int, ...]:
        """How so many units stand in it: the lengths of its axes, major first. mesh: sizes of the axes laid over it."""
        return (units,)

    @property
    def is_ring(self) -> bool:
        """Whether messages pass one device after the other."""
        return False


@dataclass(frozen=True)
class Torus(Fabric):
    """Neighbours are linked both ways along several axes.

    dims: the number of axes. wrap: an axis is closed to a ring where its length is a multiple of this (16 on a TPU v5e:
    only a full axis; 4 on a TPU v4; 1: always; 0: never). longest: the longest axis there is (0: any).
    """

    kind: ClassVar[str] = "torus"
    dims: int = 2
    wrap: int = 1
    longest: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dims < 1 or self.wrap < 0 or self.longest < 0:
            raise CostModelError(
                f"{type(self).__name__}: dims is at least 1, wrap and longest at least 0; got {self.dims}, "
                f"{self.wrap}, {self.longest}"
            )

    @property
    def is_ring(self) -> bool:
        return True

    def wraps(self, length: int) -> bool:
        """Whether an axis of this length is closed. A pair of devices has one link, not two."""
        return self.wrap > 0 and length > 2 and length % self.wrap == 0

    def shape(self, units: int, mesh: Sequence[int]) -> tuple[int, ...]:
        """The most cubic shape, as slices are cut; its axes in the order of the mesh's where products of these agree.

        Else the longer axes are minor, as in Cloud TPU's names of slices (2x4, 4x8).
        """
        cubic = [s for s in _factorings(units, self.dims) if self._fits(s)]
        if not cubic:
            raise CostModelError(
                f"{units} devices do not stand in a {self.kind} of {self.dims} axes of at most {self.longest}; give "
                "the machine one more level"
            )
        best = min(cubic, key=lambda shape: (max(shape), shape))
        agreeing = [s for s in _groupings(tuple(m for m in mesh if m > 1), self.dims) if sorted(s) == sorted(best)]
        return min(agreeing, default=best)

    def _fits(self, shape: tuple[int, ...]) -> bool:
        return not self.longest or max(shape) <= self.longest


@dataclass(frozen=True)
class Ring(Torus):
    """A torus of one axis."""

    kind: ClassVar[str] = "ring"
    dims: int = 1


@dataclass(frozen=True)
class Switch(Fabric):
    """Every device has one port into a switch without bottlenecks.

    reduces: the switch itself combines and multiplies what passes it (NVLink SHARP). reduction_efficiency: the part of
    the bandwidth that such collectives reach.
    """

    kind: ClassVar[str] = "switch"
    reduces: bool = False
    reduction_efficiency: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.reduction_efficiency <= 1:
            raise CostModelError(
                f"Switch: reduction_efficiency is a part, above 0 to 1; got {self.reduction_efficiency}")


@dataclass(frozen=True)
class FullMesh(Fabric):
    """Each pair of devices has a link of its own."""

    kind: ClassVar[str] = "full-mesh"


@dataclass(frozen=True)
class FatTree(Fabric):
    """Switches in levels. leaf: ports of a leaf switch (0: one switch). oversubscription: ports per uplink."""

    kind: ClassVar[str] = "fat-tree"
    leaf: int = 0
    oversubscription: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.leaf < 0 or self.oversubscription < 1:
            raise CostModelError(
                f"FatTree: leaf is a number of ports and oversubscription at least 1; got {self.leaf}, "
                f"{self.oversubscription}"
            )

    def neighbours(self, units: int) -> float:
        """The part of a port's bandwidth that a ring through all units has: two uplinks of each leaf switch."""
        if not self.leaf or units <= self.leaf:
            return 1.0
        return min(1.0, self.leaf / self.oversubscription)

    def pairs(self, units: int) -> float:
        """The part of a port's bandwidth where every unit sends to every other."""
        if not self.leaf or units <= self.leaf:
            return 1.0
        return min(1.0, (units - 1) / (units - self.leaf) / self.oversubscription)


#: Fabrics by the names that machine files call them.
FABRICS: dict[str, type[Fabric]] = {f.kind: f for f in (Ring, Torus, Switch, FullMesh, FatTree)}


def _factorings(n: int, parts: int) -> list[tuple[int, ...]]:
    if parts == 1:
        return [(n,)]
    return [(d, *rest) for d in _divisors(n) for rest in _factorings(n // d, parts - 1)]


def _divisors(n: int) -> list[int]:
    low = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return low + [n // d for d in reversed(low) if d * d < n]


def _groupings(sizes: tuple[int, ...], parts: int) -> list[tuple[int, ...]]:
    """The products of neighbouring sizes, in at most so many groups, padded with axes of length one."""
    if parts == 1 or len(sizes) <= 1:
        return [(*([1] * (parts - 1)), math.prod(sizes))]
    found = [(1, *rest) for rest in _groupings(sizes, parts - 1)]
    for cut in range(1, len(sizes)):
        found += [(math.prod(sizes[:cut]), *rest) for rest in _groupings(sizes[cut:], parts - 1)]
    return found
