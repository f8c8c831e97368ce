"""Choices of shardings: what a row shows, what the seed draws, and what is a failure."""

from __future__ import annotations

import io
from pathlib import Path

import jax
import pytest
from bench import auto
from bench.auto import Chosen, Records, summary
from bench.cluster.choices import Measured, preset_at, run as run_measured, summary as summary_of_measured, table
from bench.cluster.rows import Version
from bench.programs.choices import MEASURED, programs
from rich.console import Console

from eggshard.costmodel import Machine, named


@pytest.mark.slow
def test_a_choice_is_held_against_those_by_hand_and_all_others() -> None:
    console = Console(file=io.StringIO(), width=300)
    good = auto.run(console, "power iteration", model="tpu-v5e,default", most=2)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert good and shown.count("2 of 36") == 2 and "default: 1 programs: cost over the best by hand" in shown


def test_what_is_dearer_than_another_choice_fails() -> None:
    row = Chosen("f", 2.0, 1.5, {"DP": 1.9}, 1.0, (9, 9), fallback="no time")
    assert row.failures == ["fell back: no time", "1.053 of the best by hand", "2.000 of the best of all",
                            "another choice is below the bound"]
    assert not Chosen("f", 1.0, 0.9, {"DP": 1.0}, 0.995).failures
    assert list(summary([row]))[0].startswith("1 programs: cost over the best by hand: geometric mean 1.053, 0 better")


def test_sizes_come_from_the_seed() -> None:
    first, again, other = ({p.name: p.arguments for p in programs(seed)} for seed in (1, 1, 2))
    assert list(first) == list(other) and first == again != other
    assert set(MEASURED) < set(first)


def test_programs_are_whole() -> None:
    """Every way says where each argument lies, and what is fed back is of its argument's type."""
    for program in programs(little=True):
        assert all(len(specs) == len(program.arguments) for specs in program.hand.values()), program.name
        results = jax.tree.leaves(jax.eval_shape(program.function, *program.arguments))
        for i, o in program.carry.items():
            argument = program.arguments[i]
            assert (results[o].shape, results[o].dtype) == (argument.shape, argument.dtype), program.name


def test_records_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "records"
    assert Records(file).of("a plan", lambda: [1.5, 2.0]) == [1.5, 2.0]
    assert Records(file).of("a plan", lambda: 2.5) == [1.5, 2.0] and Records().of("a plan", lambda: 2.5) == 2.5


def test_a_choice_that_is_slower_than_by_hand_fails() -> None:
    slow, fast, wrong = Version(1.1, 0.0, 0.0, 0.0), Version(1.0, 0.0, 0.0, 0.0), Version(2.0, 0.0, 0.0, 0.5)
    row = Measured("f", {"AUTO": slow, "DP": fast, "TP": wrong})
    assert row.failures == ["TP differs by 5.0e-01", "1.10 of the fastest by hand"]
    assert not Measured("f", {"AUTO": slow, "DP": fast}, same=frozenset({"DP"})).failures
    good = Measured("g", {"AUTO": fast, "DP": slow})
    assert not good.failures and Measured("h", error="no host").failures == ["no host"]
    console = Console(file=io.StringIO(), width=150)
    console.print(table("seconds", [row, good, Measured("h", error="no host")]))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "1.10 of the fastest" in shown and "no host" in shown
    line = next(summary_of_measured([row, good]))
    assert line.endswith("geometric mean 1.000, at worst 1.10; the fastest, or within 5 %, on 1")


def test_a_cluster_is_priced_by_its_links(tmp_path: Path) -> None:
    machine = named(preset_at(str(tmp_path), "100mbit", 2))
    assert isinstance(machine, Machine)
    host, network = machine.levels
    assert host.units == 2 and network.fabric.bandwidth == pytest.approx(1.1e7)


@pytest.mark.slow
def test_choices_run_in_one_process() -> None:
    console = Console(file=io.StringIO(), width=150)
    run_measured(console, "k-means", hosts=1, devices=8)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "1 x 8 devices, one process" in shown and "differs" not in shown and "1 programs: seconds over" in shown
