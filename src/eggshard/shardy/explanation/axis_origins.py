"""Origins of axes in words: which argument, result, constraint or manual computation decided each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from jaxlib.mlir import ir

from eggshard.frontends.stablehlo.module_reader import short_location
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.edges import owner_of
from eggshard.shardy.module import ShardyModule
from eggshard.shardy.propagation.origins import NAME, origins_of, result_origins

#: What origins of axes are called in Shardy's notes, and here.
_ENDS = {"input": "argument", "output": "result"}
CONSTRAINT, MANUAL = "sdy.sharding_constraint", "sdy.manual_computation"


class AxisOrigins:
    """The origins that propagation notes, but for axes that are stated at the place itself: those are its own.

    Shardy notes one origin per axis and value. A value that is an argument and has a constraint, or is returned, has
    several places that state axes, and the notes name the constraint for all of them.
    """

    def __init__(self, module: ShardyModule) -> None:
        """module: before propagation."""
        self._places: dict[str, str] = {}
        self._stated: dict[str, frozenset[str]] = {}
        self._arguments: list[str] = []
        main = module.main
        if main is not None and main.regions[0].blocks:
            self._arguments = [in_brackets(argument.location) for argument in main.regions[0].blocks[0].arguments]
            for name, shardings in (("input", module.argument_shardings(main)),
                                    ("output", module.function_result_shardings(main))):
                self._stated |= {f"{name}: {i}": _axes(sharding) for i, sharding in enumerate(shardings)}

    def read(self, module: ShardyModule) -> None:
        """Take up the constraints and manual computations that propagation has named."""
        for op in module.walk(CONSTRAINT, MANUAL):
            if NAME in op.attributes:
                name = ir.StringAttr(op.attributes[NAME]).value
                self._places[name] = place(op)
                if op.name == CONSTRAINT:
                    self._stated.setdefault(name, _axes(module.sharding(op.results[0])))

    def of(self, value: Any) -> dict[str, str]:
        """Per axis of a value the name of its origin."""
        own, op = "", owner_of(value)
        if isinstance(value, ir.BlockArgument):
            own = f"input: {ir.BlockArgument(value).arg_number}" if op.name == "func.func" else ""
        elif NAME in op.attributes:
            own = ir.StringAttr(op.attributes[NAME]).value
        return self._with_own(origins_of(value), own)

    def of_result(self, function: Any, number: int) -> dict[str, str]:
        """Per axis of a function's result the name of its origin."""
        return self._with_own(result_origins(function, number), f"output: {number}")

    def _with_own(self, origins: dict[str, str], own: str) -> dict[str, str]:
        return origins | dict.fromkeys(sorted(self._stated.get(own, ())), own)

    def who(self, origin: str) -> str:
        """An origin as an argument with its name, a result, or a constraint with its line."""
        name, _, number = origin.partition(": ")
        if name in _ENDS:
            return f"{_ENDS[name]} {number}" + (self._arguments[int(number)] if name == "input" else "")
        found = next((where for key, where in self._places.items() if name == key or name.startswith(f"{key}_")), "")
        kind = "constraint" if name.startswith("constraint") else "manual computation"
        return f"{kind} at {found}" if found else f"{kind} {re.sub(r'[^0-9]', '', name)}"

    def in_words(self, origins: Iterable[str]) -> tuple[str, ...]:
        """Several origins, each once."""
        return tuple(dict.fromkeys(map(self.who, origins)))


def _axes(sharding: TensorSharding | None) -> frozenset[str]:
    return frozenset(str(axis).replace('"', "") for axes in (sharding.axes if sharding else ()) for axis in axes)


def place(op: Any) -> str:
    """``file.py:16`` of an op; the name of the op where it has no file."""
    return short_location(op.location).rpartition(" at ")[2]


def in_brackets(location: Any) -> str:
    """`` (x)`` for an argument that has a name."""
    name = short_location(location)
    return f" ({name})" if name else ""
