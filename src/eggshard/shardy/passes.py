"""The framework of passes: passes by name, with their options, and pipelines of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jaxlib.mlir import ir

from eggshard.errors import ProgramError
from eggshard.shardy.module import ShardyModule, first_complaint
from eggshard.shardy.pipelines import Named

PREFIX = "sdy-"
Run = Callable[..., None]


@dataclass(frozen=True)
class Pass(Named):
    """A pass by Shardy's name, without its prefix ``sdy-``: a function that changes a module in place.

    on: the op that jaxlib's pass is anchored on, ``builtin.module`` or ``func.func``; empty where jaxlib has none.
    """

    on: str


PASSES: dict[str, Pass] = {}


def shardy_pass(name: str, on: str = "builtin.module") -> Callable[[Run], Run]:
    """Register a function as the pass of that name."""

    def add(run: Run) -> Run:
        PASSES[name] = Pass(name, run, on)
        return run

    return add


class Step(NamedTuple):
    """A pass and the options given to it."""

    pass_: Pass
    options: Mapping[str, Any]

    def run(self, module: ShardyModule) -> None:
        """Change a module. ProgramError for one that MLIR finds invalid on the way."""
        try:
            self.pass_.run(module, **{name.replace("-", "_"): value for name, value in self.options.items()})
        except ir.MLIRError as error:
            raise ProgramError(
                f"pass {self.pass_.name} finds the module invalid: {first_complaint(error)}; shardings and data-flow "
                "edges must stand where Shardy's import passes put them"
            ) from None


def read_steps(text: str | Sequence[str | Step]) -> list[Step]:
    """The steps of ``close-shardings,reshard-to-collectives{keep-redundant-reshards=true}``.

    ProgramError for unknown passes and options, and for values that do not fit, naming those that there are.
    """
    from eggshard.program.codec import split_top_level

    parts = split_top_level(text) if isinstance(text, str) else text
    return [_read_step(part.strip()) if isinstance(part, str) else part
            for part in parts if not isinstance(part, str) or part.strip()]


def step_of(pass_: Pass, options: Mapping[str, Any]) -> Step:
    """A pass with the values of its options, by their names in Python; ProgramError as in text.

    Of options that are words, values of other types are left to the pass.
    """
    what, read = f"pass {pass_.name}", dict[str, Any]()
    for name, value in options.items():
        key = name.replace("_", "-")
        default = _default(what, key, pass_.options)
        if isinstance(value, (bool, int, str)):
            value = _value(what, key, str(value).lower(), default)
        elif not isinstance(default, str):
            raise ProgramError(f"option {key} of {what} is {type(default).__name__}, not {value!r}")
        read[key] = value
    return Step(pass_, read)


def _read_step(text: str) -> Step:
    name, given = read_call(text)
    name = name.removeprefix(PREFIX)
    if name not in PASSES:
        raise ProgramError(f"there is no pass {name!r}; there are {', '.join(sorted(PASSES))}")
    return Step(PASSES[name], read_options(f"pass {name}", given, PASSES[name].options))


def read_call(text: str) -> tuple[str, str]:
    """The name and the options of ``name{key=value key=value}``; ProgramError if it is not of that form."""
    match = re.fullmatch(r"([\w-]+)(?:\{([^{}]*)\})?", text.strip())
    if match is None:
        raise ProgramError(f"{text!r} is not a name with options, such as reshard-to-collectives{{mode=global}}")
    return match[1], match[2] or ""


def read_options(what: str, text: str, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The values of ``key=value key=value``; ProgramError for other keys than those of the defaults, or other types."""
    options: dict[str, Any] = {}
    for item in text.split():
        key, _, value = item.partition("=")
        options[key] = _value(what, key, value, _default(what, key, defaults))
    return options


def _default(what: str, key: str, defaults: Mapping[str, Any]) -> Any:
    if key not in defaults:
        raise ProgramError(f"{what} has no option {key!r}; it has {', '.join(defaults) or 'none'}")
    return defaults[key]


def _value(what: str, key: str, text: str, default: Any) -> Any:
    if isinstance(default, bool):
        if text not in ("true", "false", "1", "0"):
            raise ProgramError(f"option {key} of {what} is true or false, not {text!r}")
        return text in ("true", "1")
    if isinstance(default, int):
        if not text.lstrip("-").isdigit():
            raise ProgramError(f"option {key} of {what} is an integer, not {text!r}")
        return int(text)
    return text
