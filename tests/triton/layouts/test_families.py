"""Linear layouts of encodings are those that libtriton computes."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from tests.triton.layouts.assembled import kernel_text
from tests.triton.layouts.random_encodings import Draw

from eggshard.errors import ProgramError
from eggshard.triton.frontend import libtriton
from eggshard.triton.kernels.text import read_type
from eggshard.triton.layouts.encodings import read
from eggshard.triton.layouts.families import linear_layout
from eggshard.triton.layouts.linear import HARDWARE
from eggshard.triton.layouts.machine import Machine

pytest.importorskip("triton")

Bases = tuple[tuple[tuple[int, ...], ...], ...]


@cache
def builder() -> Any:
    from triton._C.libtriton import gluon_ir

    return gluon_ir.GluonOpBuilder(libtriton.context())


def expected(shape: tuple[int, ...], encoding: str, machine: Machine) -> Bases:
    """The bases of registers, lanes, warps and blocks as libtriton has them."""
    dims = "".join(f"{n}x" for n in shape)
    text = kernel_text([], machine).replace("%r: i32", f"%a: tensor<{dims}f32, {encoding}>")
    value = libtriton.parse(text).get_function("kernel").args(0)
    attribute = builder().get_gluon_layout_from_tensor(value)._to_ir(builder())
    found = builder().to_linear_layout(attribute, list(value.get_shape()))
    parts = (found.reg_bases, found.lane_bases, found.warp_bases, found.block_bases)
    return tuple(tuple(tuple(basis) for basis in part) for part in parts)


def ours(shape: tuple[int, ...], encoding: str, machine: Machine) -> Bases | None:
    found = linear_layout(read(encoding), shape)
    return None if found is None else tuple(found.bases(name) for name in HARDWARE)


def disagreements(seed: int, count: int, vendors: tuple[str, ...] = ("cuda", "cuda", "hip")) -> list[str]:
    draw, found, compared = Draw(seed), [], 0
    while compared < count:
        machine = draw.machine(vendors, clusters=True)
        shape = draw.shape((8, 7, 7))
        encoding = draw.encoding(len(shape), machine, linear=True)
        try:
            wanted = expected(shape, encoding, machine)
        except (ProgramError, RuntimeError):
            continue  # not a type: libtriton refuses it
        compared += 1
        if ours(shape, encoding, machine) != wanted:
            found.append(f"{shape} {encoding} {machine}")
    return found


def test_random_types_agree_with_libtriton() -> None:
    assert disagreements(1, 300) == []


def test_random_types_of_rdna_agree_with_libtriton() -> None:
    assert disagreements(1, 300, ("rdna",)) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_random_types_agree_with_libtriton(seed: int) -> None:
    assert disagreements(seed, 1000) == []


@pytest.mark.parametrize("encoding", [
    # Registers beyond the shape repeat others in a matrix fragment, and are not there in blocked and linear ones.
    "#ttg.nvidia_mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [4, 1], instrShape = [16, 8]}>",
    "#ttg.blocked<{sizePerThread = [4, 4], threadsPerWarp = [8, 4], warpsPerCTA = [2, 2], order = [1, 0]}>",
    "#ttg.dot_op<{opIdx = 1, parent = #ttg.blocked<{sizePerThread = [4, 4], threadsPerWarp = [8, 4], "
    "warpsPerCTA = [2, 2], order = [1, 0]}>}>",
    "#ttg.linear<{register = [[0, 1], [0, 0], [0, 2], [8, 0]], lane = [[0, 4], [0, 8], [1, 0], [2, 0], [4, 0]], "
    "warp = [[0, 16], [0, 0]], block = []}>",
])
@pytest.mark.parametrize("shape", [(1, 1), (2, 4), (4, 1), (16, 16), (128, 2)])
def test_shapes_smaller_than_the_tile(encoding: str, shape: tuple[int, int]) -> None:
    machine = Machine("cuda:80")
    assert ours(shape, encoding, machine) == expected(shape, encoding, machine)


@pytest.mark.parametrize("type_text", [
    "tensor<64x64xf16, #ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0]}>>",
    "tensor<64x64xf16, #ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>>",
    "tensor<64xf16, #ttg.something_new<{a = 1}>>",
    "tensor<3x5xf16, #ttg.blocked<{sizePerThread = [1, 1], threadsPerWarp = [8, 4], warpsPerCTA = [4, 1], "
    "order = [1, 0]}>>",
])
def test_what_is_not_known_has_no_layout(type_text: str) -> None:
    tensor = read_type(type_text)
    assert not isinstance(tensor, str) and tensor.encoding is not None
    assert linear_layout(read(tensor.encoding), tensor.shape) is None
