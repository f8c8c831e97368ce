"""What ops cost at an encoding."""

from __future__ import annotations

import random

import pytest
from tests.triton.layouts.assembled import assemble
from tests.triton.rules.one_op import GFX942, SM80, SM90, Sample
from tests.triton.rules.options import put, random_options
from tests.triton.rules.samples import SAMPLES

from eggshard.triton.kernels.text import write_generic
from eggshard.triton.layout_costs import default_costs
from eggshard.triton.layouts.encodings import Encoding, make
from eggshard.triton.layouts.machine import Machine
from eggshard.triton.rules import Option, work
from eggshard.triton.rules.rule import uniform


def _blocked(*sizes: int) -> Encoding:
    return make("ttg.blocked", sizePerThread=sizes, threadsPerWarp=(4, 8), warpsPerCTA=(4, 1), order=(1, 0))


def _sample(name: str) -> Sample:
    return next(sample for sample in SAMPLES if sample.name == name)


def _work(name: str, encoding: Encoding) -> tuple[tuple[str, float], ...]:
    option = _option(name, encoding)
    return work(put(_sample(name), option, SM80)[1], option, SM80).arithmetic


def _option(name: str, encoding: Encoding) -> Option:
    sample = _sample(name)
    start = Option((encoding,) * len(sample.operands), (encoding,) * len(sample.results))
    return uniform(put(sample, start, SM80)[1], encoding)


def test_arithmetic_is_paid_per_register_of_each_warp() -> None:
    """A tensor of 16 x 64 has 8 elements for each of 128 threads, or as many as a thread repeats of others."""
    assert _work("arith.addf", _blocked(1, 4)) == (("float", 8.0 * 4),)
    assert _work("math.exp", _blocked(1, 4)) == (("special", 8.0 * 4),)
    rows = make("ttg.slice", dim=2, parent=make(
        "ttg.blocked", sizePerThread=(1, 4, 1), threadsPerWarp=(1, 8, 4), warpsPerCTA=(1, 1, 4), order=(1, 0, 2)))
    assert _work("arith.addf", rows) == (("float", 16.0 * 8 * 4),)
    assert _work("arith.constant", _blocked(1, 4)) == ()


def test_accesses_are_as_wide_as_neighbours_lie() -> None:
    """The buffer is swizzled by 4 elements at a time: no more are neighbours."""
    buffer = _sample("ttg.local_load")
    for size, instructions in ((1, 8 * 4), (2, 4 * 4), (4, 2 * 4), (8, 2 * 4)):
        option = Option((None,), (_blocked(1, size),))
        assert work(put(buffer, option, SM80)[1], option, SM80).shared_loads == instructions


@pytest.mark.parametrize("machine", [SM80, SM90, GFX942], ids=lambda machine: machine.target)
def test_shared_memory_is_accessed_as_counted(machine: Machine) -> None:
    """Instructions as in the code. Of operands over blocked encodings LLVM merges loads that repeat others."""
    for sample in (s for s in SAMPLES if s.name in ("ttg.local_load", "ttg.local_store") and machine in s.machines):
        seed = random.Random(5)
        for option in (o for _ in range(3) for o in random_options(sample, machine, seed)):
            encoding = next(e for e in (*option.operands, *option.results) if e is not None)
            if "dot_op" in str(encoding) and "blocked" in str(encoding):
                continue
            kernel, op = put(sample, option, machine)
            counts, code = work(op, option, machine), assemble(write_generic(kernel), machine)
            compiled = tuple(machine.num_warps * n for n in (code.shared_loads, code.shared_stores))
            assert (counts.shared_loads, counts.shared_stores) == compiled, encoding


def test_reductions_between_warps_cost_more_than_in_threads() -> None:
    sample, costs = _sample("tt.reduce"), default_costs("cuda:80")
    found = []
    for warps, threads in (((4, 1), (32, 1)), ((4, 1), (1, 32)), ((1, 4), (1, 32))):
        parent = make("ttg.blocked", sizePerThread=(1, 1), threadsPerWarp=threads, warpsPerCTA=warps, order=(1, 0))
        option = Option((parent,), (make("ttg.slice", dim=1, parent=parent),))
        counts = work(put(sample, option, SM80)[1], option, SM80)
        found.append((counts.shuffles > 0, counts.barriers > 0, costs.price(counts)))
    assert [(shuffles, barriers) for shuffles, barriers, _ in found] == [(False, False), (True, False), (True, True)]
    assert found[1][2] < found[2][2]


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_prices_are_finite(sample: Sample) -> None:
    seed = random.Random(4)
    for machine in sample.machines:
        for _ in range(4):
            for option in random_options(sample, machine, seed):
                _check(sample, option, machine)


def _check(sample: Sample, option: Option, machine: Machine) -> None:
    counts = work(put(sample, option, machine)[1], option, machine)
    assert all(n >= 0 for n in (*counts[1:], *(n for _, n in counts.arithmetic)))
    assert {name for name, _ in counts.arithmetic} <= set(default_costs(machine.target).arithmetic)
    assert 0 <= default_costs(machine.target).price(counts) < 1e7
