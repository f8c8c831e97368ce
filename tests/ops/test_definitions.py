"""Definitions of users' own that lack an answer: each error names the op and the answer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import eggshard as es
from eggshard.ops import base
from eggshard.ops.base import Arrays, OpDef, Types, register
from eggshard.program.attributes import Attributes
from eggshard.program.program import Region


class _Named(OpDef):
    name = "of_a_user"


class _Typed(_Named):
    def infer(self, attrs: Attributes, operands: Types, regions: tuple[Region, ...] = ()) -> Types:
        return (operands[0],)


class _Meant(_Typed):
    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: tuple[Region, ...] = ()):
        return (arrays[0] * 2,)


class _Untupled(_Named):
    def infer(self, attrs: Attributes, operands: Types, regions: tuple[Region, ...] = ()):
        return operands[0]


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What a test registers is known to no other."""
    yield
    base._REGISTRY.pop("of_a_user", None)


def plan_of(definition: OpDef) -> es.Plan:
    register(definition)
    b = es.ProgramBuilder(mesh={"x": 2})
    x = b.input((8, 4), "f32", ("x", None))
    b.output(b.op("of_a_user", x), ("x", None))
    return es.optimize(b.build())


@pytest.mark.parametrize(("definition", "message"), [
    (_Named(), r"of_a_user\(tensor<8x4xf32>\).*no `infer`"), (_Untupled(), "`infer` answers a tensor type"),
])
def test_a_definition_without_types(definition: OpDef, message: str) -> None:
    with pytest.raises(es.errors.ProgramError, match=message):
        plan_of(definition)


def test_a_definition_without_a_meaning_in_numpy() -> None:
    with pytest.raises(es.errors.LoweringError, match=r"op 'of_a_user' has no `evaluate`"):
        plan_of(_Typed()).run(np.ones((8, 4), np.float32))


def test_a_definition_without_a_spelling_runs_on_the_simulator_alone() -> None:
    plan = plan_of(_Meant())
    assert "equal to the unsharded program" in str(plan.verify(engines=("numpy",)))
    with pytest.raises(es.errors.ProgramError, match=r"XLA does not take .*stablehlo.of_a_user.*`emit`"):
        plan.verify(engines=("jax",))
