"""The peers for halos: XLA's flag, and the passes of another package where it is installed."""

import pytest

jax = pytest.importorskip("jax")
jnp = jax.numpy

from bench import enzyme, peers  # noqa: E402
from bench.programs import BenchProgram, spec  # noqa: E402

SHIFTED = BenchProgram.define(
    "shifted", "test", "8", ["64x16: x -"],
    lambda u: jnp.roll(u, 1, 0) + jnp.roll(u, 2, 0) + jnp.roll(u, -1, 0), "x -",
)  # fmt: skip


def test_the_flag_is_passed_on() -> None:
    assert peers.xla(SHIFTED).wire_bytes == 4 * 64
    flagged = enzyme.flagged(SHIFTED.module)
    assert (flagged.wire_bytes, flagged.count and flagged.count.by_kind) == (3 * 64, {"collective-permute": 2})


def test_failures_are_reasons() -> None:
    assert "Error" in enzyme.flagged("no module").reason


def test_without_the_wheel_the_result_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enzyme, "interpreter", lambda: None)
    result = enzyme.peer(SHIFTED.module)
    assert (result.reason, result.least, result.json()) == ("not installed", None, {})


def test_pipelines_with_the_wheel() -> None:
    if enzyme.interpreter() is None:
        pytest.skip("enzyme_ad is not installed")
    result = enzyme.peer(SHIFTED.module)
    assert set(result.settings) == {f"{name}{flag}" for name in enzyme.PIPELINES for flag in ("", "+flag")}
    assert all(r.count is not None for r in result.settings.values())
    assert result.least is not None and result.least[1] == 3 * 64


def test_constraints_survive_the_passes() -> None:
    if enzyme.interpreter() is None:
        pytest.skip("enzyme_ad is not installed")
    moved = BenchProgram.define(
        "moved", "test", "8", ["64x64: x -"], lambda u: jax.lax.with_sharding_constraint(u * 2, spec("- x")) + 1, "- x"
    )
    least = enzyme.peer(moved.module).least
    assert least is not None and least[1] == 64 * 64 * 4 / 8 * 7 / 8
