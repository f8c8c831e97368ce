"""Programs by hand compute what the programs do."""

from __future__ import annotations

import jax
import pytest
from bench.programs import seconds, use_cpu_devices
from bench.programs.by_hand import by_hand, names
from bench.run import difference, placed_inputs

#: One of each kind of code; the others are slow to compile, all together.
_QUICK = {
    "MLP of 4, Adam, FSDP", "mixture of experts", "decoding", "reshard, tiles to rows",
    "level set, 10 steps", "shallow water, 10 steps", "conjugate gradients",
    "Poisson by FFT",
}  # fmt: skip


@pytest.mark.parametrize("name", [n if n in _QUICK else pytest.param(n, marks=pytest.mark.slow) for n in names()])
def test_by_hand_as_xla(name: str) -> None:
    use_cpu_devices()
    program = seconds.program(name)
    function = by_hand(program)
    assert function is not None
    inputs = placed_inputs(program)
    got, want = jax.jit(function)(*inputs), program.jitted(*inputs)
    assert difference(got, want) < 1e-4


def test_there_are_programs_that_nobody_wrote_by_hand() -> None:
    assert by_hand(seconds.program("Navier-Stokes")) is None
    known = {name for kind in seconds.names().values() for name in kind}
    assert _QUICK < set(names()) <= known
