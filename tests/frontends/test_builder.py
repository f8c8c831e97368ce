"""Programs built by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from eggshard.errors import EggshardError, ProgramError, ShardingError
from eggshard.frontends import load
from eggshard.frontends.builder import ProgramBuilder, Tensor
from eggshard.ops.evaluate import evaluate_program
from eggshard.ops.module_text import program_text
from eggshard.program.mesh import Mesh
from eggshard.program.sharding import Sharding

RNG = np.random.default_rng(0)
A, B = RNG.standard_normal((4, 6)).astype(np.float32), RNG.standard_normal((6, 3)).astype(np.float32)

Build = Callable[[ProgramBuilder, Tensor, Tensor], Tensor]
CASES: list[tuple[Build, Callable[[np.ndarray, np.ndarray], Any]]] = [
    (lambda b, x, y: x @ y, lambda x, y: x @ y),
    (lambda b, x, y: 1 - x / 2 + 3 * x - (-x) ** 2, lambda x, y: 1 - x / 2 + 3 * x - x**2),
    (lambda b, x, y: np.float32(2) * x, lambda x, y: 2 * x),
    (lambda b, x, y: x * b.sum(y), lambda x, y: x * y.sum()),
    (lambda b, x, y: b.exp(b.tanh(b.sin(x))), lambda x, y: np.exp(np.tanh(np.sin(x)))),
    (lambda b, x, y: x - b.broadcast(b.max(x, 1), x.shape, (0,)), lambda x, y: x - x.max(1, keepdims=True)),
    (lambda b, x, y: b.sum(x, (-1,), keep=True), lambda x, y: x.sum(1, keepdims=True)),
    (lambda b, x, y: b.select(b.compare(x, "GT", 0), x, 0.0), lambda x, y: np.maximum(x, 0)),
    (lambda b, x, y: b.maximum(x, 0), lambda x, y: np.maximum(x, 0)),
    (lambda b, x, y: b.transpose(b.reshape(x, (2, -1))), lambda x, y: x.reshape(2, -1).T),
    (lambda b, x, y: b.slice(x, (1, 0), (4, 6), (2, 3)), lambda x, y: x[1:4:2, 0:6:3]),
    (lambda b, x, y: b.pad(x, (1, 0), (0, 2), 5.0), lambda x, y: np.pad(x, ((1, 0), (0, 2)), constant_values=5)),
    (lambda b, x, y: b.concatenate([x, b.reverse(x, (0,))], 1), lambda x, y: np.concatenate([x, x[::-1]], 1)),
    (lambda b, x, y: b.dot_general(x, y, ((1,), (0,)), dtype="f32"), lambda x, y: x @ y),
    (lambda b, x, y: b.convert(b.iota((2, 3), 1), "f32"), lambda x, y: np.tile(np.arange(3, dtype=np.float32), (2, 1))),
    (lambda b, x, y: x + b.constant(A), lambda x, y: x + A),
    (lambda b, x, y: b.op("optimization_barrier", x), lambda x, y: x),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_meaning(case: int) -> None:
    build, want = CASES[case]
    b = ProgramBuilder({"x": 2})
    x, y = b.input(A.shape, "f32", ("x",)), b.input(B.shape, np.float32)
    b.output(build(b, x, y))
    program = b.build()
    (got,) = evaluate_program(program, [A, B])
    np.testing.assert_allclose(got, want(A, B), rtol=1e-5, atol=1e-6)
    again = load(program_text(program))
    assert again == program


def test_batched_dot() -> None:
    b = ProgramBuilder()
    x, y = b.input((5, 2, 3)), b.input((5, 3, 4))
    assert (x @ y).shape == (5, 2, 4) and repr(x) == "Tensor(%0: tensor<5x2x3xf32>)"
    with pytest.raises(ProgramError, match="use dot_general"):
        y @ b.input((2, 4, 4))


def test_boundaries() -> None:
    b = ProgramBuilder({"x": 4, "y": 2}, name="step")
    x = b.input((8, 4), "bf16", ("x:(1)2", None), name="field")
    y = b.constrain(x + 1, ("y", "x:(2)2"))
    late = b.input((), "i32", name="late")
    b.output(y, '[{"x":(2)2}, {?}]', name="next")
    b.output(late)
    program = b.build()
    assert program.mesh == Mesh({"x:(1)2": 2, "x:(2)2": 2, "y": 2}) and program.name == "step"
    assert program.input_names == ("field", "late") and program.output_names == ("next", "result1")
    assert program.region.inputs == (0, 1) and program.region.outputs[1] == 1
    assert program.input_shardings == (Sharding.parse('[{"x":(1)2}, {}]'), None)
    assert load(program_text(program)).region == program.region


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda b, x: x + b.input((4, 1)), r"add\(tensor<4x6xf32>, tensor<4x1xf32>\): the shapes differ.*broadcast"),
        (lambda b, x: x + b.input((4, 6), "i32"), "add.*convert makes them equal"),
        (lambda b, x: b.reshape(x, (5, 5)), "reshape.*25 elements"),
        (lambda b, x: b.op("no_such_op", x), "'no_such_op' is not in the registry; ops have StableHLO's names"),
        (lambda b, x: b.op("exp", x), "near it: exponential, exponential_minus_one"),
        (lambda b, x: b.op("logistics", x), "near it: .*logistic"),
        (lambda b, x: b.op("add", x, "text"), "neither a tensor nor a scalar"),
        (lambda b, x: b.input((2,), "i32") + 1.5, "scalar 1.5 is not a value of i32"),
        (lambda b, x: b.input((2,), "i8") + 300, "scalar 300 is not a value of i8"),
        (lambda b, x: b.ops("add", 1, 2), "neither a tensor nor a scalar beside a tensor"),
        (lambda b, x: x + ProgramBuilder().input((4, 6)), "belongs to another builder"),
        (lambda b, x: b.output(3), "is not a tensor of this builder"),
        (lambda b, x: b.input((-1,)), "non-negative"),
        (lambda b, x: b.input((2,), "f31"), "'f31' is not supported"),
        (lambda b, x: b.input((2,), "f32", ("q",)), 'input arg1.*axis "q" is unknown; the mesh has x=2'),
        (lambda b, x: b.output(x, ("x", "x")), "output result0.*used twice"),
        (lambda b, x: b.constrain(x, None), "needs a sharding"),
        (lambda b, x: b.reduce(x, "mean"), "'mean' is unknown"),
        (lambda b, x: b.build(), "no outputs"),
    ],
)
def test_errors(act: Callable[[ProgramBuilder, Tensor], Any], message: str) -> None:
    b = ProgramBuilder({"x": 2})
    x = b.input((4, 6))
    with pytest.raises(EggshardError, match="(?s)" + message):
        act(b, x)


def test_shardings_are_checked_where_they_are_given() -> None:
    b = ProgramBuilder({"x": 2})
    with pytest.raises(ShardingError, match="has 3 entries for a tensor of rank 2"):
        b.input((4, 6), "f32", ("x", None, None))
