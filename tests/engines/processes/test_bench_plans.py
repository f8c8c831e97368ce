"""The benches' own plans on processes, and on threads in their place: the simulator's results, as much memory."""

from __future__ import annotations

import importlib
import sys
import warnings

import numpy as np
import pytest

pytest.importorskip("jax")
from mmap import PAGESIZE as PAGE  # noqa: E402

from tests.engines.ranks.threads import run_on_threads  # noqa: E402

import eggshard as es  # noqa: E402
from eggshard.engines.jax.verification import difference, random_array, tolerance  # noqa: E402
from eggshard.engines.processes.launcher import Processes  # noqa: E402
from eggshard.errors import EggshardWarning, LoweringError  # noqa: E402
from eggshard.simulate.device_arrays import same_bits  # noqa: E402
from eggshard.simulate.execution import scattered  # noqa: E402
from eggshard.simulate.simulator import run  # noqa: E402

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="measures pages of shared memory")
VARIANTS = 8
#: Every so many programs of a family has processes of its own; threads run the others.
PROCESSES = 6


def planned(program):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EggshardWarning)
        source = program.text if program.text is not None else program.lower()
        return es.optimize(source, cost_model=es.costmodel.WireBytes())


def off(plan, got, want):
    """How far results are from the simulator's, in units of what rounding explains."""
    types = [plan.device_program.types[v] for v in plan.device_program.outputs]
    return max(
        (0.0 if same_bits(g, w).all() else difference(g, w) / max(tolerance(t.dtype), 1e-300)
         for g, w, t in zip(got, want, types, strict=True)), default=0.0,
    )


def on_processes(plan, shards):
    with Processes(plan.device_program, timeout=900) as processes:
        got = processes.run(shards)
        report = processes.report
    assert abs(report.measured - report.planned) <= PAGE * 2 * plan.mesh.size, report
    return got


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("family", ["reshard", "dense", "stencil", "padslice", "training"])
def test_as_on_the_simulator(family, monkeypatch):
    monkeypatch.setattr("tests.engines.ranks.threads.SECONDS", 900.0)
    module = importlib.import_module(f"bench.programs.{family}")
    programs = [p for p in (*module.PROGRAMS, *module.variants(0, VARIANTS)) if not p.extra]
    found = {}
    for number, program in enumerate(programs):
        plan = planned(program)
        inputs = program.inputs()
        if len(inputs) != len(plan.program.input_types):  # what a program does not use, it does not take
            rng = np.random.default_rng(number)
            inputs = tuple(random_array(t, rng) for t in plan.program.input_types)
        shards = scattered(plan, inputs)
        try:
            want = run(plan.device_program, shards)
        except LoweringError:  # nor does the simulator run what only JAX knows
            continue
        got = run_on_threads(plan.device_program, shards) if number % PROCESSES else on_processes(plan, shards)
        found[program.name] = off(plan, got, want)
    assert len(found) >= 0.9 * len(programs)
    print(f"{family}: {len(found)} plans, {sum(v == 0 for v in found.values())} bit for bit")
    assert not {name: v for name, v in found.items() if v > 1}


@pytest.mark.parametrize(
    "family, name", [("reshard", "3D rotation left"), ("stencil", "1D periodic concat + slice x8")]
)
def test_some_as_on_the_simulator(family, name):
    (program,) = (p for p in importlib.import_module(f"bench.programs.{family}").PROGRAMS if p.name == name)
    plan = planned(program)
    shards = scattered(plan, program.inputs())
    assert off(plan, run_on_threads(plan.device_program, shards), run(plan.device_program, shards)) == 0
