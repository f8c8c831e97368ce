"""A front end of one's own: registered, it is what every way into eggshard asks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import eggshard as es
from eggshard.errors import LoweringError, ProgramError
from eggshard.frontends import Frontend, frontend_of, load, register, registry
from eggshard.frontends.builder import ProgramBuilder, Tensor
from eggshard.program.types import TensorType

ROWS = ("x", None)


class Expression(tuple[Any, ...]):
    """``("matmul", left, right)``, ``("tanh", operand)``, or the name of an array of 16 times 16 numbers."""

    def names(self) -> list[str]:
        """Of the arrays, in order of first use."""
        inner = [[part] if isinstance(part, str) else Expression(part).names() for part in self[1:]]
        return list(dict.fromkeys(name for names in inner for name in names))


@dataclass(frozen=True)
class ByName:
    """Arrays are given by name, and the result is under the name "value"."""

    names: tuple[str, ...]
    name: str = "expression"
    device_ids: tuple[int, ...] = ()
    resized_to: tuple[TensorType, ...] = ()

    def flattened(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        if args or set(kwargs) != set(self.names):
            raise LoweringError(f"give {', '.join(self.names)} by name")
        return [kwargs[name] for name in self.names]

    def rebuilt(self, outputs: Sequence[Any]) -> dict[str, Any]:
        (value,) = outputs
        return {"value": value}

    def resized(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> ByName:
        return replace(self, resized_to=(*inputs, *outputs))


class Expressions(Frontend):
    name = "a nested tuple of ops and names"

    def accepts(self, source: Any) -> bool:
        return isinstance(source, Expression)

    def read(self, source: Expression) -> es.Program:
        builder = ProgramBuilder({"x": 4}, name="expression")
        arrays = {name: builder.input((16, 16), "f32", ROWS, name) for name in source.names()}

        def value(part: Any) -> Tensor:
            if isinstance(part, str):
                return arrays[part]
            op, *operands = part
            if op not in ("matmul", "tanh"):
                raise ProgramError(f"no op {op!r}")
            first, *others = map(value, operands)
            return first @ others[0] if op == "matmul" else builder.tanh(first)

        builder.output(value(source), ROWS)
        return builder.build()

    def calling_convention(self, source: Expression) -> ByName:
        return ByName(tuple(source.names()))


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[Expressions]:
    monkeypatch.setattr(registry, "_frontends", list(registry._frontends))
    frontend = Expressions()
    register(frontend)
    yield frontend


SOURCE = Expression(("matmul", ("tanh", "a"), ("matmul", "b", "a")))


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=(16, 16)).astype(np.float32) for name in ("a", "b")}


def expected() -> np.ndarray:
    a, b = arrays().values()
    return np.tanh(a) @ (b @ a)


@pytest.mark.usefixtures("registered")
def test_a_source_of_ones_own_is_planned_and_run() -> None:
    plan = es.optimize(SOURCE)
    plan.verify(engines=("numpy",))
    convention = plan.calling_convention
    assert convention == ByName(("a", "b")) == plan.baseline.calling_convention
    outputs = plan.run(*convention.flattened((), arrays()))
    np.testing.assert_allclose(convention.rebuilt(outputs)["value"], expected(), rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("registered")
def test_jax_runs_it_as_its_source_is_called() -> None:
    function = es.optimize(SOURCE).to_jax()
    assert function.__name__ == "expression"
    np.testing.assert_allclose(function(**arrays())["value"], expected(), rtol=1e-4, atol=1e-4)
    with pytest.raises(LoweringError, match="give a, b by name"):
        function(1, 2)


@pytest.mark.usefixtures("registered")
def test_plans_come_back_from_json_for_it() -> None:
    plan = es.optimize(SOURCE)
    text = plan.to_json()
    again = es.Plan.from_json(text, SOURCE)
    assert again.device_program == plan.device_program and again.calling_convention == plan.calling_convention
    assert es.Plan.from_json(text).calling_convention is None
    assert again.require(SOURCE, {"x": 4}) is again
    with pytest.raises(ProgramError, match="the plan is of another program than expression"):
        again.require(Expression(("tanh", "a")))


@pytest.mark.usefixtures("registered")
def test_its_convention_goes_to_other_numbers_of_devices() -> None:
    plan = es.optimize(Expression(("tanh", "a")))
    shape = TensorType((32, 16), "f32")
    assert plan.on(8).calling_convention == ByName(("a",), resized_to=(shape, shape))


def test_the_latest_front_end_is_asked_first(registered: Expressions) -> None:
    assert frontend_of(SOURCE) is registered
    another = Expressions()
    register(another)
    assert frontend_of(SOURCE) is another
    program = load(SOURCE)
    assert load(program) is program


@pytest.mark.usefixtures("registered")
def test_what_nobody_reads_is_refused_with_what_is_read() -> None:
    for thing in (3, lambda x: x, None, object()):
        with pytest.raises(ProgramError, match=f"cannot load a program from {type(thing).__name__}") as error:
            load(thing)
        for name in (Expressions.name, "a Program", "StableHLO text", "path", "jaxlib.mlir", "jax.jit", "jax.export"):
            assert name in str(error.value)
    for thing in (3, Expressions):
        with pytest.raises(ProgramError, match="is no front end"):
            register(thing)


def test_frameworks_are_imported_for_their_own_sources_only() -> None:
    code = """if True:
        import sys
        import eggshard
        import eggshard.frontends as f
        from eggshard.frontends.builder import ProgramBuilder
        b = ProgramBuilder({"x": 2})
        b.output(b.tanh(b.input((4,))))
        program = b.build()
        assert f.load(program) is program
        try:
            f.load(object())
        except eggshard.errors.ProgramError:
            print(sorted({"jax", "jaxlib", "egglog"} & sys.modules.keys()))
        """
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.stdout.strip() == "[]", result.stderr
