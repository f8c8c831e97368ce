"""The bench of cost models: what it says of tables that a machine could have measured, and of ranks."""

from pathlib import Path

import numpy as np
from bench import costmodel as bench
from bench.costmodel_ranks import Alternative, kendall
from rich.console import Console

from eggshard.costmodel import StepInfo, preset
from eggshard.costmodel.algorithms import KINDS
from eggshard.costmodel.table import Measured
from eggshard.program.mesh import Mesh


def rows(noise: float) -> list[Measured]:
    rng, machine, out = np.random.default_rng(0), preset("b200-node"), []
    for kind in KINDS:
        for n in (2, 4, 8):
            for p in range(10, 30):
                step = StepInfo(kind, Mesh({"rest": 8 // n, "group": n}), axes=("group",), group=n,
                                wire_bytes=float(1 << p), messages=1, memory_bytes=2.0 ** p)
                out.append((step, machine.seconds(step) * float(np.exp(noise * rng.normal()))))
    return out


def test_a_table_of_the_models_own_kind_is_within_the_bounds() -> None:
    assert bench._held_out(Console(quiet=True), "device", preset("h100-node"), rows(0.05))
    assert not bench._held_out(Console(quiet=True), "device", preset("h100-node"), rows(2.0))


def test_anchors_hold_and_a_missing_table_is_said(capsys) -> None:
    assert bench.run(Console(width=200), only="anchors")
    assert "680" in capsys.readouterr().out
    assert bench.run(Console(width=200), only="table", table="")
    assert "EGGSHARD_XLA_TABLE" in capsys.readouterr().out


def test_rounded_rates_are_left_out_where_all_are(tmp_path: Path) -> None:
    step = rows(0.0)[40][0]
    exact = [(step, bench._size(step) / rate) for rate in (1e7, 3e8)]
    assert bench._exact(exact) == exact[1:]
    assert len(bench._exact([*exact, (step, 1.2345e-5)])) == 3


def test_kendalls_tau_counts_pairs_that_do_not_tie() -> None:
    def found(*pairs: tuple[float, float]) -> list[Alternative]:
        return [Alternative(None, price, seconds, 0.01) for price, seconds in pairs]  # type: ignore[arg-type]

    assert kendall(found((1, 1), (2, 2), (3, 3)), lambda a: a.price) == (3, 3)
    assert kendall(found((1, 3), (2, 2), (3, 1)), lambda a: a.price) == (-3, 3)
    assert kendall(found((1, 1), (2, 1.005), (3, 3)), lambda a: a.price) == (2, 2)
    assert kendall(found((1, 1), (1, 2)), lambda a: a.price) == (0, 1)
