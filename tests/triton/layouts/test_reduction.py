"""Reductions and scans: predicted shuffles, shared memory and barriers agree with the code that Triton compiles."""

from __future__ import annotations

import pytest
from tests.triton.layouts.assembled import assemble, combination_kernel, width_of
from tests.triton.layouts.random_encodings import Draw

from eggshard.errors import ProgramError
from eggshard.triton.layouts.counts import Counts
from eggshard.triton.layouts.encodings import read
from eggshard.triton.layouts.families import linear_layout
from eggshard.triton.layouts.linear import LinearLayout
from eggshard.triton.layouts.machine import Machine
from eggshard.triton.layouts.reduction import Combination, reduction, scan

pytest.importorskip("triton")

COMBINED = (
    ("f32", "arith.addf"), ("f32", "arith.maxnumf"), ("f16", "arith.addf"), ("i32", "arith.addi"),
    ("i64", "arith.addi"), ("i32", "arith.muli"), ("i8", "arith.addi"), ("i16", "arith.maxsi"))


def seen(counts: Counts, machine: Machine) -> tuple[float, ...]:
    warps = machine.num_warps
    return (counts.shuffles / warps, counts.shared_stores / warps, counts.shared_loads / warps, counts.barriers,
            counts.warp_barriers / warps, counts.scratch)


def disagreements(op: str, seed: int, count: int, vendors: tuple[str, ...]) -> list[str]:
    draw, found, compared = Draw(seed), [], 0
    while compared < count:
        machine, shape = draw.machine(vendors), draw.shape()
        element, combine = draw.random.choice(COMBINED)
        rank, axis, reverse = len(shape), draw.random.randrange(len(shape)), draw.random.random() < 0.3
        encoding = draw.blocked(rank, machine) if op == "tt.scan" else draw.encoding(rank, machine)
        layout = linear_layout(read(encoding), shape)
        if layout is None or layout.elements_per_thread > 256:
            continue
        properties = f", reverse = {str(reverse).lower()}" if op == "tt.scan" else ""
        text = combination_kernel(op, shape, element, encoding, axis, combine, machine, properties)
        try:
            code = assemble(text, machine)
        except (ProgramError, RuntimeError):
            continue
        compared += 1
        combination = Combination((width_of(element),), single=combine)
        if op == "tt.scan":
            counts = scan(layout, axis, read(encoding).ints("order"), combination, machine, reverse)
        else:
            counts = reduction(layout, axis, combination, machine)
        if seen(counts, machine) != code[:6]:
            found.append(f"{shape} axis {axis} {element} {combine} {machine} {encoding} reverse {reverse}: "
                         f"{seen(counts, machine)}, compiled {code[:6]}")
    return found


def test_random_reductions_are_compiled_as_predicted() -> None:
    assert disagreements("tt.reduce", 1, 16, ("cuda", "cuda", "hip")) == []


def test_random_scans_are_compiled_as_predicted() -> None:
    assert disagreements("tt.scan", 1, 16, ("cuda",)) == []


@pytest.mark.slow
def test_many_random_reductions_are_compiled_as_predicted() -> None:
    assert disagreements("tt.reduce", 2, 200, ("cuda", "cuda", "hip")) == []


@pytest.mark.slow
def test_many_random_scans_are_compiled_as_predicted() -> None:
    assert disagreements("tt.scan", 2, 200, ("cuda",)) == []


def test_a_reduction_within_threads_needs_only_arithmetic() -> None:
    layout = LinearLayout.of((4, 128), [(1, 0), (2, 0)], [(0, 1 << i) for i in range(5)], [(0, 32), (0, 64)])
    counts = reduction(layout, 0, Combination((32,)), Machine("cuda:80"))
    assert counts == Counts(arithmetic=(("float", 3.0 * 4),))
