"""How often blocks run: counts that the kernel says, and stated guesses for others."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from tests.triton.planned import kernel_of, ops

from eggshard.triton.frequencies import Frequencies, frequencies

LOOP = "scf.for %i = {} to {} step {} : i32 {{ tt.store %p, %x : !tt.ptr<f32> }}"


def store_times(body: str) -> list[float]:
    """How often each store runs."""
    constants = "".join(f"%k{n} = arith.constant {n} : i32\n" for n in (0, 1, 2, 3, 8, 9))
    kernel = kernel_of(f"{constants} %x = arith.constant 1.0 : f32\n{body}")
    times = frequencies(kernel, Frequencies(trips=10.0, branch=0.25))
    return [times[op.parent] for op in ops(kernel, "tt.store") if op.parent is not None]


@pytest.mark.parametrize(("bounds", "count"), [
    (("%k0", "%k8", "%k1"), 8.0), (("%k0", "%k8", "%k3"), 3.0), (("%k2", "%k9", "%k2"), 4.0),
    (("%k0", "%n", "%k1"), 10.0), (("%n", "%k8", "%k1"), 10.0), (("%k0", "%k8", "%n"), 10.0),
    (("%k8", "%k0", "%k1"), 1.0), (("%k3", "%k3", "%k1"), 1.0),
])
def test_counts_are_read_off_constant_bounds(bounds: tuple[str, str, str], count: float) -> None:
    assert store_times(LOOP.format(*bounds)) == [count]


def test_loops_and_branches_multiply() -> None:
    inner = LOOP.format("%k0", "%k3", "%k1").replace("%i", "%j")
    found = store_times(f"""
      tt.store %p, %x : !tt.ptr<f32>
      scf.for %i = %k0 to %k8 step %k1 : i32 {{
        scf.if %c {{ {inner} }} else {{ tt.store %p, %x : !tt.ptr<f32> }}
      }}""")
    assert found == [1.0, 8 * 0.25 * 3, 8 * 0.25]


def test_while_loops_have_no_count() -> None:
    found = store_times("""
      scf.while : () -> () {
        tt.store %p, %x : !tt.ptr<f32>
        scf.condition(%c)
      } do {
        tt.store %p, %x : !tt.ptr<f32>
        scf.yield
      }""")
    assert found == [10.0, 10.0]
