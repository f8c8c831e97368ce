"""The bench of seconds in one process: its programs, what it calls a failure, and one program through it."""

from __future__ import annotations

from typing import Any

import pytest
from bench import run
from bench.programs import seconds, use_cpu_devices


def test_programs_are_named_once_and_drawn_by_their_seed() -> None:
    names = [name for kind in seconds.names().values() for name in kind]
    assert len(names) == len(set(names)) > 30
    assert seconds.variants(3, 4) == seconds.variants(3, 6)[:4] != seconds.variants(4, 4)
    drawn = seconds.variants(3, 2)[1]
    assert seconds.program(drawn).name == drawn and seconds.program(drawn).num_devices == 8


@pytest.mark.parametrize("changed,why", [
    ({}, []), ({"ours": 1.06}, ["slower"]), ({"fallback": "no rules"}, ["fell back: no rules"]),
    ({"difference": 0.1}, ["differs by 1.0e-01"]), ({"error": "no plan"}, ["no plan"]),
])
def test_what_fails(changed: dict[str, Any], why: list[str]) -> None:
    found = {"xla": 1.0, "ours": 1.0, "fallback": "", "difference": 0.0}
    assert run._failures({**found, **changed}) == why


def test_calls_take_turns() -> None:
    calls: list[str] = []
    times = run.interleaved([lambda: calls.append("a"), lambda: calls.append("b")], spent=0.0)
    assert calls == ["a", "b"] * 3 and [len(t) for t in times] == [3, 3]


def test_a_program_is_measured() -> None:
    use_cpu_devices()
    found = run.measure("decoding")
    assert not found["fallback"] and found["difference"] < 1e-5 and found["hand"] > 0
    assert found["figures"]["bytes"] <= found["xla_figures"]["bytes"]
