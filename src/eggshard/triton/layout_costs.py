"""Cost models of layouts: prices of a kernel's instructions, in cycles of a streaming multiprocessor (a compute unit).

A user's own model is any class with ``price(counts)``. A price is a time in which the multiprocessor is busy, or in
which a thread block waits with nothing else to do; prices add up.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from eggshard.triton.layouts.counts import Counts


@runtime_checkable
class LayoutCostModel(Protocol):
    """Anything with this method prices layouts."""

    def price(self, counts: Counts) -> float:
        """The price of what one thread block issues: finite, not negative, and of a sum the sum of the prices."""
        ...


@dataclass(frozen=True, slots=True)
class LayoutCosts:
    """Cycles per instruction of a warp, as the throughputs of a multiprocessor give them.

    arithmetic: by class; others than the known ones cost as ``float``. move: selects, byte permutes. shuffle: 32 bits
    between lanes. shared_issue: a load or store of shared memory, besides its wavefronts. wavefront: 32 banks served
    once. barrier: a barrier of the block with the round trip through shared memory that it waits for; warp_barrier: of
    a warp; takeover: the barrier before shared memory is used again. global_issue: a load or store, besides its lines;
    global_line: 128 bytes that hit the cache.
    """

    arithmetic: dict[str, float] = field(hash=False)
    move: float
    shuffle: float
    shared_issue: float
    wavefront: float
    barrier: float
    warp_barrier: float
    takeover: float
    global_issue: float
    global_line: float

    def price(self, counts: Counts) -> float:
        default = self.arithmetic["float"]
        work = sum(self.arithmetic.get(name, default) * count for name, count in counts.arithmetic)
        return (
            work
            + self.move * counts.moves
            + self.shuffle * counts.shuffles
            + self.shared_issue * (counts.shared_stores + counts.shared_loads)
            + self.wavefront * (counts.shared_store_wavefronts + counts.shared_load_wavefronts)
            + self.barrier * counts.barriers
            + self.warp_barrier * counts.warp_barriers
            + self.takeover * counts.takeovers
            + self.global_issue * (counts.global_loads + counts.global_stores)
            + self.global_line * counts.global_lines
        )


@dataclass(frozen=True)
class WithinScratch:
    """Another model's prices, and a prohibitive one for what holds more than ``scratch`` bytes of shared memory."""

    model: LayoutCostModel
    scratch: int

    def price(self, counts: Counts) -> float:
        return self.model.price(counts) + (PROHIBITIVE if counts.scratch > self.scratch else 0.0)


@dataclass(frozen=True)
class Surcharged:
    """Another model's prices, and so many cycles more for each arithmetic instruction of a warp, for each of its
    loads and stores of shared memory, and for each barrier: plans do with fewer of them."""

    model: LayoutCostModel
    arithmetic: float = 0.0
    shared: float = 0.0
    barrier: float = 0.0

    def price(self, counts: Counts) -> float:
        return (self.model.price(counts) + self.arithmetic * sum(count for _, count in counts.arithmetic)
                + self.shared * (counts.shared_stores + counts.shared_loads)
                + self.barrier * (counts.barriers + counts.takeovers))


#: More cycles than any kernel's layouts cost.
PROHIBITIVE = 1e9


#: NVIDIA A100. Throughputs: CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions", compute
#: capability 8.0, results per clock and multiprocessor: float 64, integer 64, shuffles 32, special functions 16,
#: conversions 16 to 64; a warp's instruction takes 32 results. Division is a reciprocal, a Newton step and a fix-up,
#: about ten instructions. Shared memory: 32 banks of 4 bytes a clock; its latency is 29 cycles, L1's 38 (Luo et al.,
#: "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture", 2024, arXiv:2402.13499, table of memory latencies):
#: a barrier's price is that of a store, a load and the wait for the last warp between them (an estimate, as are the
#: prices of a warp's barrier and of a takeover). Global: 128 bytes a clock of L1, and as much again for L2's half rate.
SM80 = LayoutCosts(
    arithmetic={"integer": 0.5, "float": 0.5, "conversion": 1.0, "special": 2.5, "division": 6.0},
    move=0.5,
    shuffle=1.0,
    shared_issue=1.0,
    wavefront=1.0,
    barrier=100.0,
    warp_barrier=4.0,
    takeover=20.0,
    global_issue=1.0,
    global_line=2.0,
)

#: NVIDIA T4, compute capability 7.5: as above, but 64 bytes a clock of shared memory and of L1. That a wavefront takes
#: two cycles is what measurements say, too: 64 of them out and 64 back took 4.3 ns on 40 multiprocessors
#: (triton-lang/triton#10360, comment of 2026-05-30).
SM75 = replace(SM80, wavefront=2.0, global_line=3.0)

#: NVIDIA H100: as A100, compute capability 9.0: float 128, integer 64; the same latency of shared memory. So is B200's,
#: 10.0.
SM90 = replace(SM80, arithmetic={"integer": 0.5, "float": 0.25, "conversion": 0.5, "special": 2.25, "division": 5.0})

#: NVIDIA GeForce: as A100, compute capabilities 8.6, 8.9 and 12.0: float 128, conversions 16 to 64.
SM86 = replace(SM80, arithmetic={"integer": 0.5, "float": 0.25, "conversion": 1.0, "special": 2.25, "division": 5.0})

#: AMD MI300X: AMD CDNA 3 white paper and instruction set: four units of 16 lanes take 4 cycles each for a wavefront of
#: 64 (one instruction a cycle and compute unit), transcendental functions a quarter of that; local data share 128 bytes
#: a clock, so that a permutation of 64 lanes takes two (it executes those, too: ROCm Compute Profiler's documentation,
#: "Local data share", Utilization); vector L1 64 bytes a clock, and 16 addresses. The latency of the local data share
#: is about 64 cycles. That a barrier weighs as much as many loads is what others measure: on an MI300X one of the three
#: in a matrix product's loop was worth 5.7 % of its time, on average over 86 shapes (Composable Kernel, "CompV4: remove
#: redundant barrier", ROCm/rocm-libraries#7442).
GFX942 = LayoutCosts(
    arithmetic={"integer": 1.0, "float": 1.0, "conversion": 1.0, "special": 4.0, "division": 12.0},
    move=1.0,
    shuffle=2.0,
    shared_issue=1.0,
    wavefront=1.0,
    barrier=190.0,
    warp_barrier=4.0,
    takeover=20.0,
    global_issue=4.0,
    global_line=2.0,
)


#: AMD RDNA 3 and 4, a work-group processor: four units of 32 lanes take a wavefront's instruction each cycle, and a
#: quarter of that of transcendental functions (RDNA 3 instruction set and white paper); 128 bytes a clock of the local
#: data share, 64 of each of two vector caches. The local data share's latency is taken to be that of CDNA.
GFX1100 = LayoutCosts(
    arithmetic={"integer": 0.25, "float": 0.25, "conversion": 0.25, "special": 1.0, "division": 3.0},
    move=0.25,
    shuffle=1.0,
    shared_issue=1.0,
    wavefront=1.0,
    barrier=190.0,
    warp_barrier=4.0,
    takeover=20.0,
    global_issue=1.0,
    global_line=1.0,
)


#: By target, as modules name them.
COSTS = {"cuda:75": SM75, "cuda:80": SM80, "cuda:86": SM86, "cuda:89": SM86, "cuda:90": SM90, "cuda:100": SM90,
         "cuda:120": SM86, "hip:gfx942": GFX942, "hip:gfx1100": GFX1100}


def priced_as(target: str) -> str:
    """The target whose costs are those of a target: the nearest older one that has some, of the same vendor."""
    vendor, _, architecture = target.partition(":")
    if vendor == "hip":
        return "hip:gfx1100" if architecture.startswith(("gfx10", "gfx11", "gfx12")) else "hip:gfx942"
    known = [int(name[5:]) for name in COSTS if name.startswith("cuda:")]
    if not architecture.isdigit():
        return "cuda:80"
    return f"cuda:{max((n for n in known if n <= int(architecture)), default=min(known))}"


def default_costs(target: str) -> LayoutCosts:
    """The costs of a target (``cuda:90``, ``hip:gfx942``); of one that has none of its own, those of `priced_as`."""
    return COSTS[priced_as(target)]
