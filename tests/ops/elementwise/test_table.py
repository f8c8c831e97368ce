"""The table of elementwise ops: what its rows declare holds, and a row is all that an op needs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

import eggshard as es
from eggshard import shardy
from eggshard.ops import base, registry
from eggshard.ops.base import Traits
from eggshard.ops.elementwise.table import Elementwise
from eggshard.program.attributes import Attributes
from eggshard.program.types import numpy_dtype
from eggshard.shardy import traits
from eggshard.shardy.module import parsed

ROWS = [name for name in registry.names() if isinstance(registry.get(name), Elementwise)]
DTYPES = {"f": ("f32", "f64", "bf16"), "c": ("complex<f32>",), "i": ("i8", "i32"), "u": ("ui8",), "b": ("i1",)}
NUMBERS = (0.0, 1.0, -1.0, 3.0, 100.0)


def _dtypes(definition: Elementwise) -> list[np.dtype]:
    return [numpy_dtype(dtype) for letter in definition.classes for dtype in DTYPES[letter]]


@pytest.mark.parametrize("name", [n for n in ROWS if Traits.KEEPS_ZERO in registry.get(n).traits])
def test_of_zeros_it_makes_positive_zeros(name: str) -> None:
    definition = registry.get(name)
    for dtype in _dtypes(definition):
        (made,) = definition.evaluate(Attributes(), [np.zeros(3, dtype)] * definition.arity)
        assert made.tobytes() == bytes(made.nbytes), (dtype, made)


@pytest.mark.parametrize("name", [n for n in ROWS if Traits.IDEMPOTENT in registry.get(n).traits])
def test_of_equal_operands_it_makes_what_they_are(name: str) -> None:
    definition = registry.get(name)
    for dtype, number in itertools.product(_dtypes(definition), NUMBERS):
        operand = np.array([number]).astype(dtype)
        (made,) = definition.evaluate(Attributes(), [operand] * definition.arity)
        assert made.dtype == dtype and made.tobytes() == operand.tobytes()


def test_only_pointwise_ops_have_traits() -> None:
    for name in registry.names():
        definition = registry.get(name)
        assert definition.pointwise or definition.traits is Traits.NONE
        assert Traits.DEAR not in definition.traits, f"{name} is one instruction and many"


#: An op of MLIR that has no row, and one that has, of the same meaning.
NEW, KNOWN = Elementwise("math.sinh", 1, "f", np.sinh, Traits.KEEPS_ZERO | Traits.FUNCTION), "chlo.sinh"


@pytest.fixture
def registered() -> Iterator[None]:
    """An op that nothing but its row knows."""
    base.register(NEW)
    yield
    base._REGISTRY.pop(NEW.name)


def _plan(op: str) -> es.Plan:
    """The op within a chain, on partial sums that are to be reduced after it or before."""
    b = es.ProgramBuilder(mesh={"x": 4})
    x, w = b.input((64, 128), "f32", (None, "x")), b.input((128, 64), "f32", ("x", None))
    y = b.op(op, b.dot(b.op(op, x * x + x), w))
    b.output(y + y, ("x", None))
    return es.optimize(b.build(), cost_model="alpha-beta")  # `cpu-host` has measured tanh


@pytest.mark.usefixtures("registered")
def test_a_row_is_planned_simulated_and_spelled() -> None:
    plan, like = _plan("math.sinh"), _plan(KNOWN)
    assert "equal to the unsharded program" in str(plan.verify(engines=("numpy",)))
    assert plan.collectives == like.collectives and plan.cost.total == like.cost.total
    assert plan.to_stablehlo().replace(NEW.name, KNOWN) == like.to_stablehlo()
    assert f'"{NEW.name}"' in plan.to_stablehlo()


@pytest.mark.usefixtures("registered")
def test_memory_of_a_row_is_predicted() -> None:
    assert _plan("math.sinh").memory == _plan(KNOWN).memory


@pytest.mark.usefixtures("registered")
def test_a_row_goes_to_json_and_back() -> None:
    plan = _plan("math.sinh")
    assert es.Plan.from_json(plan.to_json()).device_program == plan.device_program


MODULE = """sdy.mesh @mesh = <["x"=4, "y"=2]>
func.func @main(%a: tensor<5x3xf32>) -> tensor<3xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = sdy.reshard %a <@mesh, [{"x"}, {}]> : tensor<5x3xf32>
  %1 = "math.sinh"(%0) {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>}
    : (tensor<5x3xf32>) -> tensor<5x3xf32>
  %2 = "stablehlo.reduce"(%1, %zero) ({
    ^bb0(%l: tensor<f32>, %m: tensor<f32>):
      %s = stablehlo.add %l, %m : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) {dimensions = array<i64: 0>} : (tensor<5x3xf32>, tensor<f32>) -> tensor<3xf32>
  return %2 : tensor<3xf32>
}"""


def _line(text: str) -> str:
    return next(line for line in text.splitlines() if NEW.name in line)


@pytest.mark.usefixtures("registered")
def test_shardys_passes_know_a_row() -> None:
    with parsed(MODULE) as module:
        (op,) = module.walk("math.sinh")
        assert traits.is_elementwise(op)
    padded = shardy.transform(MODULE, "pad-for-divisibility")
    assert _line(padded).endswith(": tensor<8x3xf32>"), "it is done on equal shards"
    assert "stablehlo.select" not in padded, "its zeros stay zeros, which a sum need not mask"


def test_an_op_without_a_row_is_left_alone() -> None:
    with parsed(MODULE) as module:
        (op,) = module.walk("math.sinh")
        assert not traits.is_elementwise(op)
    assert ": tensor<5x3xf32>" in _line(shardy.transform(MODULE, "pad-for-divisibility"))
