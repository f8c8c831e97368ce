"""Encodings and shapes drawn at random, of all distributed kinds, as text that libtriton accepts."""

from __future__ import annotations

import random

from eggshard.triton.layouts.machine import Machine


class Draw:
    """A source of types for one machine. ``small``: no cluster, shapes that compile quickly."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def power(self, low: int, high: int) -> int:
        return 1 << self.random.randint(low, high)

    def machine(self, vendors: tuple[str, ...], clusters: bool = False) -> Machine:
        vendor = self.random.choice(vendors)
        warps = self.random.choice([1, 2, 4, 8])
        if vendor == "hip":
            return Machine("hip:gfx942", warps, 64)
        if vendor == "rdna":
            return Machine(self.random.choice(["hip:gfx1100", "hip:gfx1200", "hip:gfx1250"]), warps, 32)
        return Machine(
            self.random.choice(["cuda:80", "cuda:90"]), warps, 32,
            self.random.choice([1, 1, 1, 2, 4]) if clusters else 1)

    def shape(self, highest: tuple[int, int, int] = (9, 7, 4)) -> tuple[int, ...]:
        """One to three dimensions of at most so many bits."""
        rank = self.random.choice([1, 2, 2, 2, 3])
        return tuple(self.power(0, highest[rank - 1]) for _ in range(rank))

    def encoding(self, rank: int, machine: Machine, linear: bool = False) -> str:
        """Any kind, or a slice or two of any."""
        sliced = min(3, rank + self.random.choice([0, 0, 0, 1, 1, 2]))
        text = self._whole(sliced, machine, linear)
        for left in range(sliced, rank, -1):
            text = f"#ttg.slice<{{dim = {self.random.randrange(left)}, parent = {text}}}>"
        return text

    def _whole(self, rank: int, machine: Machine, linear: bool) -> str:
        kind = self.random.randrange(7 if linear else 6)
        if kind == 6:
            return self._linear(rank, machine)
        rdna = machine.vendor == "hip" and machine.threads_per_warp == 32
        if kind < 2 or rank == 1 or rdna and (rank == 3 or machine.num_warps == 1):  # which libtriton ends at
            return self.blocked(rank, machine)
        operand = self.random.choice([0, 1])
        if kind == 5:
            return f"#ttg.dot_op<{{opIdx = {operand}, parent = {self.blocked(rank, machine)}}}>"
        if rdna:
            parent, width = self._wmma(rank, machine), self.random.choice([8, 16])
        elif machine.vendor == "hip":
            parent, width = self._mfma(rank, machine), self.random.choice([1, 2, 4, 8])
        else:
            hopper = rank == 2 and machine.num_warps >= 4 and self.random.random() < 0.5
            parent, width = self._mma(rank, machine, hopper), self.random.choice([1, 2, 4])
            operand = 0 if hopper else operand
        if kind < 4:
            return parent
        return f"#ttg.dot_op<{{opIdx = {operand}, parent = {parent}, kWidth = {width}}}>"

    def blocked(self, rank: int, machine: Machine) -> str:
        order = list(range(rank))
        self.random.shuffle(order)
        sizes = [self.power(0, 3) for _ in range(rank)]
        return (
            f"#ttg.blocked<{{sizePerThread = {sizes}, threadsPerWarp = {self._split(machine.threads_per_warp, rank)}, "
            f"warpsPerCTA = {self._split(machine.num_warps, rank)}, order = {order}{self._blocks(rank, machine)}}}>")

    def _mma(self, rank: int, machine: Machine, hopper: bool) -> str:
        if hopper:
            warps = self.random.choice([[machine.num_warps, 1], [4, machine.num_warps // 4]])
            shape = [16, self.random.choice([8, 16, 32, 64, 128]), 16]
        else:
            warps = self._split(machine.num_warps, rank)
            shape = [1, 16, 8][3 - rank:]
        return (
            f"#ttg.nvidia_mma<{{versionMajor = {3 if hopper else 2}, versionMinor = 0, warpsPerCTA = {warps}, "
            f"instrShape = {shape}{self._blocks(rank, machine)}}}>")

    def _mfma(self, rank: int, machine: Machine) -> str:
        shape = self.random.choice([[16, 16, 16], [32, 32, 8], [16, 16, 32], [32, 32, 16], [4, 64, 4], [64, 4, 4]])
        transposed = shape[:2] == [64, 4] or self.random.random() < 0.5
        tiles = ""
        if self.random.random() < 0.25:
            per_warp = [1] * (rank - 2) + [self.random.choice([1, 2]), self.random.choice([1, 2])]
            tiles = f", tilesPerWarp = {per_warp}"
        return (
            f"#ttg.amd_mfma<{{version = 3, warpsPerCTA = {self._split(machine.num_warps, rank)}, instrShape = {shape}, "
            f"isTransposed = {str(transposed).lower()}{tiles}}}>")

    def _wmma(self, rank: int, machine: Machine) -> str:
        """Warps one after the other along any dimension; some instructions of a warp side by side before."""
        version = {"gfx1100": 1, "gfx1200": 2, "gfx1250": 3}[machine.architecture]
        reached, vectors = [1] * rank, []
        registers = self.random.choice([0, 0, 1, 2])
        for _ in range(registers + machine.num_warps.bit_length() - 1):
            dim = self.random.randrange(rank)
            vectors.append(self._vector(rank, (dim, reached[dim])))
            reached[dim] *= 2
        placed = f"register = {vectors[:registers]}, " if registers else ""
        shape = ", instrShape = [16, 16, 32]" if version == 3 else ""
        return (
            f"#ttg.amd_wmma<{{version = {version}, isTranspose = {self.random.choice(['true', 'false'])}, "
            f"ctaLayout = {{{placed}warp = {vectors[registers:]}}}{shape}}}>")

    def _linear(self, rank: int, machine: Machine) -> str:
        """Bits of the dimensions dealt out to the hardware's, with some that make no difference."""
        bits = [(d, 1 << i) for d in range(rank) for i in range(self.random.randint(0, 5))]
        self.random.shuffle(bits)
        sizes = {
            "register": self.random.randint(0, 4),
            "lane": machine.threads_per_warp.bit_length() - 1,
            "warp": machine.num_warps.bit_length() - 1,
            "block": machine.num_ctas.bit_length() - 1,
        }
        dealt: dict[str, list[list[int]]] = {}
        for name, size in sizes.items():
            dealt[name] = [
                self._vector(rank, bits.pop() if bits and self.random.random() < 0.85 else None) for _ in range(size)]
        dealt["register"] += [self._vector(rank, bit) for bit in bits]
        return f"#ttg.linear<{{{', '.join(f'{name} = {vectors}' for name, vectors in dealt.items())}}}>"

    @staticmethod
    def _vector(rank: int, bit: tuple[int, int] | None) -> list[int]:
        return [bit[1] if bit is not None and d == bit[0] else 0 for d in range(rank)]

    def _split(self, total: int, rank: int) -> list[int]:
        found = [1] * rank
        while total > 1:
            found[self.random.randrange(rank)] *= 2
            total //= 2
        return found

    def _blocks(self, rank: int, machine: Machine) -> str:
        if machine.num_ctas == 1:
            return ""
        spread, vectors = [1] * rank, []
        for _ in range(machine.num_ctas.bit_length() - 1):
            bit = None
            if self.random.random() < 0.8:
                dim = self.random.randrange(rank)
                bit = (dim, spread[dim])
                spread[dim] *= 2
            vectors.append(self._vector(rank, bit))
        return f", CGALayout = {vectors}"
