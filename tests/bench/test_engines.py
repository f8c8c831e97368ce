"""The engines' bench: programs for few devices, drawn from a seed, and rows that tell what is wrong."""

from __future__ import annotations

import pytest

pytest.importorskip("jax")
from bench.engines import Measured, Row, measure, memory, summary, times  # noqa: E402
from bench.programs import by_name  # noqa: E402
from bench.programs.engines import PROGRAMS, variants  # noqa: E402
from tests.engines.mpi.ranks import missing  # noqa: E402


def test_programs_have_names_of_their_own_and_few_devices():
    drawn = variants(0, 12)
    assert by_name([*PROGRAMS, *drawn])
    assert all(2 <= p.num_devices <= 4 for p in (*PROGRAMS, *drawn))
    assert [p.name for p in drawn] == [p.name for p in variants(0, 12)] != [p.name for p in variants(1, 12)]


def test_rows_tell_what_is_wrong():
    row = Row("stencil", 4, 2.0, {
        "processes": Measured(1.0, 0.0, 8192, 8192.0), "MPI": Measured(3.0, 2.0, 8192, 65536.0),
        "JAX": Measured(note="no devices"),
    })  # fmt: skip
    assert row.ratio("processes") == 0.5 and row.ratio("JAX") is None and row.ratio("other") is None
    assert row.failures == [
        "MPI: differs from the simulator", "MPI: touched 65536 B of 8192 B", "JAX: no devices"
    ]
    assert times([row]).row_count == memory([row]).row_count == 1
    lines = summary([row, Row("good", 2, 1.0, {"processes": Measured(1.0, 0.5)})])
    assert lines[0] == "2 programs; failures on 1" and lines[-1].startswith("FAILED stencil: MPI: differs")
    assert any("processes: 2 programs, median 0.75" in line for line in lines)


def test_a_program_on_the_engines_that_own_memory():
    (program,) = [p for p in variants(0, 3) if "MLP" in p.name]
    engines = ("processes",) if missing() else ("processes", "MPI")
    (row,) = measure([program], engines)
    assert not row.failures and tuple(row.engines) == engines
    for each in row.engines.values():
        assert each.seconds is not None and each.planned is not None and each.difference <= 1
