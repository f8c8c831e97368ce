"""What programs are brought to before their reshards are explicit: calls in place, split reductions, folded slices."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import pytest
from tests.shardy.local.pipeline import floats, integers, lowered, to_device
from tests.shardy.running import assert_runs_equal
from tests.slowness import some

from eggshard import shardy
from eggshard.errors import ProgramError

MESH = 'sdy.mesh @mesh = <["x"=4, "y"=2]>'
ROWS = (("x", None),)


def moved(text: str, mode: str) -> list[str]:
    """The collectives of a program of a device, which computes what it should."""
    inlined = shardy.transform(text, "chlo-legalize-to-stablehlo,inline-calls")
    before, local = to_device(inlined, mode, "wire-bytes" if mode == "global" else "")
    assert_runs_equal(before, local, text, xla=True, nans=(False,))
    return [line.split("stablehlo.")[1].split('"')[0].split("(")[0] for line in local.splitlines() if any(
        f"stablehlo.{kind}" in line for kind in ("collective_permute", "all_gather", "all_reduce", "all_to_all"))]


@pytest.mark.parametrize("shift, mode", [(1, "shardy"), (5, "shardy"), (1, "global"), (-1, "global"), (3, "global")])
def test_a_rotation_is_one_permute_a_round(shift: int, mode: str) -> None:
    """Whatever it wraps around travels with the rows that do not; shards have four rows, of which a shift may need two.
    """
    text = lowered(partial(jnp.roll, shift=shift, axis=0), [floats(16, 6)], ROWS, ROWS)
    assert moved(text, mode) == ["collective_permute"] * (1 if abs(shift) < 4 else 2)


@pytest.mark.parametrize("mode", ["shardy", "global"])
def test_slices_of_a_padded_tensor_fetch_what_they_need(mode: str) -> None:
    def smoothed(x: jax.Array) -> jax.Array:
        wide = jnp.pad(x, ((2, 0), (0, 0)))
        return wide[:-2] + wide[1:-1] + wide[2:]

    assert moved(lowered(smoothed, [floats(16, 6)], ROWS, ROWS), mode) == ["collective_permute"] * 2


@pytest.mark.parametrize("function", [jnp.argmax, jnp.argmin])
@pytest.mark.parametrize("mode", ["shardy", "global"])
@pytest.mark.parametrize("types", some([floats(64, 6), integers(64, 6), floats(6, 4)], 2))
def test_every_device_reduces_what_it_holds(function: object, mode: str, types: jax.ShapeDtypeStruct) -> None:
    """Of uneven shards, the whole is gathered."""
    specs = ROWS if types.shape[0] % 4 == 0 else ((None, "x"),)
    text = lowered(partial(function, axis=0 if specs == ROWS else 1), [types], specs, ((None,),))
    assert set(moved(text, mode)) <= {"all_gather"}
    if types.shape[0] == 64 and mode == "shardy":
        local = to_device(shardy.transform(text, "chlo-legalize-to-stablehlo,inline-calls"), mode)[1]
        assert "tensor<64x6x" not in local


def test_calls_are_put_in_place_with_what_they_state() -> None:
    x = '{sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}'
    text = f"""module {{ {MESH}
      func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {{
        %0 = call @outer(%a) : (tensor<8xf32>) -> tensor<8xf32>
        %1 = call @kept(%0) {{mhlo.frontend_attributes = {{inlineable = "false"}}}} : (tensor<8xf32>) -> tensor<8xf32>
        %2 = call @declared(%1) : (tensor<8xf32>) -> tensor<8xf32>
        return %2 : tensor<8xf32> }}
      func.func private @outer(%a: tensor<8xf32> {x}) -> (tensor<8xf32> {x}) {{
        %0 = call @inner(%a) : (tensor<8xf32>) -> tensor<8xf32>
        return %0 : tensor<8xf32> }}
      func.func private @inner(%a: tensor<8xf32>) -> tensor<8xf32> {{
        %0 = stablehlo.negate %a : tensor<8xf32>
        return %0 : tensor<8xf32> }}
      func.func private @kept(%a: tensor<8xf32>) -> tensor<8xf32> {{ return %a : tensor<8xf32> }}
      func.func private @declared(tensor<8xf32>) -> tensor<8xf32> }}"""
    after = shardy.transform(text, "inline-calls")
    assert after.count("call @") == 2 and "@outer" not in after and "@inner" not in after
    assert after.count("sdy.sharding_constraint") == 2 and "stablehlo.negate" in after
    with pytest.raises(ProgramError, match="write the recursion as a loop"):
        shardy.transform(text.replace("stablehlo.negate %a : tensor<8xf32>",
                                      "call @outer(%a) : (tensor<8xf32>) -> tensor<8xf32>"), "inline-calls")


def test_nothing_is_folded_or_split_that_is_not_sharded() -> None:
    def function(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.argmax(x, 1), jnp.pad(x, ((0, 0), (1, 1)))[:, 1:]

    text = lowered(function, [floats(16, 6)], ROWS, (("x",), ("x", None)))
    inlined = shardy.transform(text, "chlo-legalize-to-stablehlo,inline-calls")
    propagated = shardy.transform(inlined, shardy.steps_of("propagation"))
    assert shardy.transform(propagated, "split-reductions,fold-slices-of-pads") == propagated
