"""The benches' own plans on ranks, as many as each has devices."""

from __future__ import annotations

import importlib
import warnings

import numpy as np
import pytest

pytest.importorskip("jax")
from tests.engines.mpi.ranks import needs_mpi, run_cases  # noqa: E402

import eggshard as es  # noqa: E402
from eggshard.engines.jax.verification import difference, tolerance  # noqa: E402
from eggshard.errors import EggshardWarning, LoweringError  # noqa: E402
from eggshard.simulate.device_arrays import same_bits  # noqa: E402

pytestmark = [needs_mpi, pytest.mark.slow]
VARIANTS = 8


def planned(program):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EggshardWarning)
        source = program.text if program.text is not None else program.lower()
        return es.optimize(source, cost_model=es.costmodel.WireBytes())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("family", ["engines", "reshard", "dense", "stencil", "padslice", "training"])
def test_as_on_the_simulator(family, tmp_path):
    module = importlib.import_module(f"bench.programs.{family}")
    programs = [p for p in (*module.PROGRAMS, *module.variants(0, VARIANTS)) if not p.extra]
    names, cases, wanted = [], [], []
    for program in programs:
        plan = planned(program)
        inputs = program.inputs()
        try:
            want = plan.run(*inputs)
        except LoweringError:  # nor does the simulator run what only JAX knows
            continue
        names.append(program.name)
        cases.append((plan, inputs))
        wanted.append(want)
    assert len(cases) >= 0.9 * len(programs)
    results = run_cases(tmp_path, cases, max(plan.mesh.size for plan, _ in cases), timeout=1800)
    worst = {}
    for name, (plan, _), got, want in zip(names, cases, results, wanted, strict=True):
        off = [
            0.0 if same_bits(g, w).all() else difference(g, w) / max(tolerance(t.dtype), np.finfo(float).tiny)
            for g, w, t in zip(got, want, plan.program.output_types, strict=True)
        ]
        worst[name] = max(off, default=0.0)
    print(f"{family}: {len(worst)} plans, {sum(v == 0 for v in worst.values())} bit for bit")
    assert not {name: v for name, v in worst.items() if v > 1}
