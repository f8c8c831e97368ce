"""The benches' own plans on eight devices of two JAX processes, read from JSON: the unsharded program's results."""

from __future__ import annotations

import importlib
import warnings

import numpy as np
import pytest

pytest.importorskip("jax")
from tests.engines.jax import several_processes  # noqa: E402

import eggshard as es  # noqa: E402
from eggshard.engines.jax.archives import save_arrays  # noqa: E402
from eggshard.engines.jax.verification import random_array  # noqa: E402
from eggshard.errors import EggshardWarning  # noqa: E402

pytestmark = pytest.mark.slow
VARIANTS = 8

EACH = """
from pathlib import Path
import eggshard as es
from eggshard.engines.jax.archives import load_arrays

folder = Path({folder!r})
for file in sorted(folder.glob("*.json")):
    plan = es.Plan.from_json(file.read_text())
    inputs = load_arrays(file.with_suffix(".npz"), plan.program.input_types)
    found = plan.verify(engines=("jax",), inputs=inputs)
    report(file.stem, found.differences["jax"])
"""


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("family", ["engines", "reshard", "dense", "stencil", "padslice", "training"])
def test_as_the_unsharded_program(family, tmp_path, monkeypatch):
    monkeypatch.setattr(several_processes, "PATIENCE", 1800.0)
    module = importlib.import_module(f"bench.programs.{family}")
    programs = [p for p in (*module.PROGRAMS, *module.variants(0, VARIANTS)) if not p.extra]
    count = 0
    for number, program in enumerate(programs):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EggshardWarning)
            source = program.text if program.text is not None else program.lower()
            plan = es.optimize(source, cost_model=es.costmodel.WireBytes())
        if plan.device_program.has_effects or plan.mesh.size not in (1, 2, 4, 8):
            continue
        inputs = program.inputs()
        if len(inputs) != len(plan.program.input_types):  # what a program does not use, it does not take
            rng = np.random.default_rng(number)
            inputs = tuple(random_array(t, rng) for t in plan.program.input_types)
        (tmp_path / f"{number:03}.json").write_text(plan.to_json())
        save_arrays(tmp_path / f"{number:03}.npz", inputs)
        count += 1
    assert count >= 0.7 * len(programs)
    first, second = several_processes.run_processes(EACH.format(folder=str(tmp_path)))
    assert len(first.splitlines()) == len(second.splitlines()) == count
    print(f"{family}: {count} plans")
