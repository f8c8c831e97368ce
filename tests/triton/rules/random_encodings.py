"""Random encodings of several kinds for a shape and machine."""

from __future__ import annotations

import random
from collections.abc import Sequence

from eggshard.triton.layouts.encodings import Encoding, make
from eggshard.triton.layouts.machine import Machine


def random_encoding(random: random.Random, shape: Sequence[int], machine: Machine, depth: int = 1) -> Encoding:
    """An encoding of a tensor of the shape on the machine, of any kind."""
    kinds = [blocked, blocked]
    if depth:
        kinds += [sliced, sliced]
    if machine.num_ctas > 1:
        return random.choice(kinds)(random, shape, machine, depth)
    kinds.append(linear)
    if len(shape) == 2:
        kinds += [mfma, mfma_operand] if machine.vendor == "hip" else [mma, mma_operand, blocked_operand]
        if machine.capability >= 90 and machine.num_warps % 4 == 0:
            kinds.append(wgmma)
    return random.choice(kinds)(random, shape, machine, depth)


def blocked(random: random.Random, shape: Sequence[int], machine: Machine, depth: int = 0) -> Encoding:
    rank = len(shape)
    order = random.sample(range(rank), rank)
    sizes = tuple(random.choice([1, 1, 2, 4]) for _ in shape)
    threads, warps = (_shares(random, count, rank) for count in (machine.threads_per_warp, machine.num_warps))
    blocks = {"CGALayout": _blocks(random, shape, machine)} if machine.num_ctas > 1 else {}
    return make("ttg.blocked", sizePerThread=sizes, threadsPerWarp=threads, warpsPerCTA=warps, order=tuple(order),
                **blocks)


def linear(random: random.Random, shape: Sequence[int], machine: Machine, depth: int = 0) -> Encoding:
    rank = len(shape)
    units = [tuple(1 << k if d == dim else 0 for d in range(rank))
             for dim, n in enumerate(shape) for k in range(n.bit_length() - 1)]
    random.shuffle(units)
    lanes, warps = machine.threads_per_warp.bit_length() - 1, machine.num_warps.bit_length() - 1
    keep = random.randrange(0, 1 + min(len(units), 3))
    register, rest = units[:keep], units[keep:]
    slots = random.sample(range(lanes + warps), min(len(rest), lanes + warps))
    threads = [(0,) * rank] * (lanes + warps)
    for slot, unit in zip(slots, rest, strict=False):
        threads[slot] = unit
    register += rest[len(slots):]
    return make("ttg.linear", register=tuple(register), lane=tuple(threads[:lanes]), warp=tuple(threads[lanes:]),
                block=())


def sliced(random: random.Random, shape: Sequence[int], machine: Machine, depth: int = 0) -> Encoding:
    dim = random.randrange(len(shape) + 1)
    wider = [*shape[:dim], random.choice([1, 2, 16]), *shape[dim:]]
    return make("ttg.slice", dim=dim, parent=random_encoding(random, wider, machine, 0))


def mma(random: random.Random, shape: Sequence[int], machine: Machine, depth: int = 0) -> Encoding:
    return make("ttg.nvidia_mma", versionMajor=2, versionMinor=0, warpsPerCTA=_shares(random, machine.num_warps, 2),
                instrShape=(16, 8))


def wgmma(random: random.Random, shape: Sequence[int], machine: Machine, depth: int = 0) -> Encoding:
    warps = (4, machine.num_warps // 4)
    return make("ttg.nvidia_mma", versionMajor=3, versionMinor=0, warpsPerCTA=warps,
                instrShape=(16, random.choice([16, 32]), 16))


def mma_operand(random: random.Random, shape: Sequence[int], machine: Machine, depth: int = 0) -> Encoding:
    parent = mma(random, shape, machine)
    return make("ttg.dot_op", opIdx=random.randrange(2), parent=parent, kWidth=random.choice([1, 2, 4]))


def blocked_operand(random: random.Random, shape: Sequence[int], machine: Machine, depth: int = 0) -> Encoding:
    return make("ttg.dot_op", opIdx=random.randrange(2), parent=blocked(random, shape, machine))


def mfma(random: random.Random, shape: Sequence[int], machine: Machine, depth: int = 0) -> Encoding:
    return make("ttg.amd_mfma", version=3, warpsPerCTA=_shares(random, machine.num_warps, 2),
                instrShape=random.choice([(32, 32, 8), (16, 16, 16)]), isTransposed=random.choice(["true", "false"]))


def mfma_operand(random: random.Random, shape: Sequence[int], machine: Machine, depth: int = 0) -> Encoding:
    parent = mfma(random, shape, machine)
    return make("ttg.dot_op", opIdx=random.randrange(2), parent=parent, kWidth=random.choice([4, 8]))


def _blocks(random: random.Random, shape: Sequence[int], machine: Machine) -> tuple[tuple[int, ...], ...]:
    """Each bit of a block's number steps along one dimension, or none where there is no room."""
    found, counts = [], [1] * len(shape)
    for _ in range(machine.num_ctas.bit_length() - 1):
        dim = random.randrange(len(shape))
        room = counts[dim] < shape[dim]
        found.append(tuple(counts[dim] if d == dim and room else 0 for d in range(len(shape))))
        counts[dim] *= 2 if room else 1
    return tuple(found)


def _shares(random: random.Random, count: int, rank: int) -> tuple[int, ...]:
    """Powers of two whose product is ``count``."""
    found = [1] * rank
    while count > 1:
        found[random.randrange(rank)] *= 2
        count //= 2
    return tuple(found)
