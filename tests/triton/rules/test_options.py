"""Every option that a rule gives is one that libtriton verifies and lowers, and that moves no data silently."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest
from tests.slowness import some

pytest.importorskip("triton")

from tests.triton.rules.compiling import compile_kernel
from tests.triton.rules.one_op import CLUSTER, Sample, held, verify
from tests.triton.rules.options import asked, put, random_options, undecided
from tests.triton.rules.samples import COMBINING, MEMORY, MOVEMENT, POINTWISE, SAMPLES, same_elements

from eggshard.triton import rules
from eggshard.triton.kernels.ir import Operation
from eggshard.triton.layouts.families import linear_layout
from eggshard.triton.layouts.linear import equal
from eggshard.triton.layouts.machine import Machine
from eggshard.triton.rules import OPERANDS, RESULTS, Option

#: Ops that libtriton verifies and does not lower, at any encoding.
NOT_LOWERED = ("arith.mului_extended",)


def _cases(samples: list[Sample]) -> list[tuple[Sample, Machine]]:
    return [(sample, machine) for sample in samples for machine in sample.machines]


#: Of kernels that run in clusters of blocks.
_IN_CLUSTERS = [(sample, CLUSTER) for sample in (POINTWISE[0], *MOVEMENT, *COMBINING[:3])]


def _name(case: object) -> str:
    return f"{case.target}x{case.num_ctas}" if isinstance(case, Machine) else str(case)


@pytest.mark.parametrize("sample, machine", some([*_cases(SAMPLES), *_IN_CLUSTERS], 90, rows=True), ids=_name)
def test_verified(sample: Sample, machine: Machine) -> None:
    for option in islice(_many(sample, machine, 0), 6):
        verify(put(sample, option, machine)[0])


@pytest.mark.parametrize("sample, machine", some(_cases(SAMPLES), 64, rows=True), ids=_name)
def test_asked_for(sample: Sample, machine: Machine) -> None:
    """What was asked for is in the answer, or lies equal; and asked from there again, the answer is the same."""
    seed = random.Random(1)
    for _ in range(6):
        for result, number, encoding, option in asked(sample, undecided(sample), machine, seed):
            _, op = put(sample, option, machine)
            given = option[result][number]
            if given != encoding:
                assert given is not None
                tensor = (op.results if result else op.operands)[number].tensor
                assert tensor is not None
                one, other = (linear_layout(e, tensor.shape) for e in (given, encoding))
                assert one is not None and other is not None and equal(one, other)
            for i, e in enumerate(option.operands):
                if e is not None:
                    assert option in rules.options(op, OPERANDS, i, e, machine)
            for i, e in enumerate(option.results):
                if e is not None:
                    assert option in rules.options(op, RESULTS, i, e, machine)


@pytest.mark.parametrize("sample, machine", [*_cases(MOVEMENT), *_IN_CLUSTERS[1:-3]], ids=_name)
def test_nothing_moves(sample: Sample, machine: Machine) -> None:
    """Each thread holds of the results the elements that it holds of the operands."""
    for option in islice(_many(sample, machine, 2), 4):
        _, op = put(sample, option, machine)
        operand = option.operands[0]
        assert operand is not None
        before = _numbered(op, held(op.operands[0], operand, machine))
        after: list[set[int]] = [set() for _ in before]
        for number, (value, encoding) in enumerate(zip(op.results, option.results, strict=True)):
            assert encoding is not None
            elements = same_elements(op, number, held(value, encoding, machine))
            for thread, numbers in zip(after, _numbered(op, elements), strict=True):
                thread |= numbers
        assert after == before


def _numbered(op: Operation, index: tuple[np.ndarray, ...]) -> list[set[int]]:
    """Per thread the elements of the first operand, by their numbers in row-major order."""
    tensor = op.operands[0].tensor
    assert tensor is not None
    return [set(row) for row in np.ravel_multi_index(index, tensor.shape).tolist()]


def _many(sample: Sample, machine: Machine, seed: int) -> Iterator[Option]:
    """Options that random encodings lead to; at least one."""
    source = random.Random(seed)
    found = False
    for _ in range(40):
        for option in random_options(sample, machine, source):
            found = True
            yield option
    assert found


@pytest.mark.parametrize("sample", [POINTWISE[0], *MOVEMENT[3:4], COMBINING[0], MEMORY[0]], ids=str)
def test_lowered(sample: Sample) -> None:
    _check_lowered(sample, 1)


@pytest.mark.slow
@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.name not in NOT_LOWERED], ids=str)
def test_all_lowered(sample: Sample) -> None:
    _check_lowered(sample, 4)


def _check_lowered(sample: Sample, count: int) -> None:
    for machine in sample.machines:
        for option in islice(_many(sample, machine, 3), count):
            assert compile_kernel(put(sample, option, machine)[0], machine) is None, (machine, option)
