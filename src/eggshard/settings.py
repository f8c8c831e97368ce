"""Settings of the process: `eggshard.config`, its environment variables, and the logger ``eggshard``.

    EGGSHARD_SECONDS=10 python train.py
    eggshard.config.cost_model = "tpu-v5e"
    with eggshard.config(guard=True): ...

An option that is given where it is used goes first, then the innermost ``with``, an assignment, the variable.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, NamedTuple

from eggshard.errors import ConfigError

#: Plans that are made and why functions are not planned (INFO), and how long each stage took (DEBUG).
LOGGER = logging.getLogger("eggshard")
LOGGER.addHandler(logging.NullHandler())


def _flag(text: str) -> bool:
    if text.lower() not in ("0", "1", "false", "true"):
        raise ValueError("give 0, 1, false or true")
    return text.lower() in ("1", "true")


class Option(NamedTuple):
    """A setting: what it is without any, what it does, how to read it from a variable, and which values it may have."""

    default: Any
    says: str
    read: Callable[[str], Any]
    holds: Callable[[Any], bool]

    def checked(self, name: str, value: Any) -> Any:
        """The value; ConfigError if it is none of this option."""
        if not self.holds(value):
            raise ConfigError(f"eggshard.config.{name} cannot be {value!r}: {self.says}")
        return value


OPTIONS: Mapping[str, Option] = {
    "cost_model": Option(
        None, "the cost model where none is given: its name or a machine's file; None for the machine at hand", str,
        lambda value: value is None or isinstance(value, str)),
    "seconds": Option(
        60.0, "what a search may take, Limits.seconds where no limits are given: a number above 0", float,
        lambda value: isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0),
    "effort": Option(
        "default", "what a search may take where nothing is said: fast, default or certify (Limits.effort)", str,
        lambda value: value in ("fast", "default", "certify")),
    "guard": Option(
        False, "whether eggshard.jit compares its plans with XLA's programs and runs the better: True or False", _flag,
        lambda value: isinstance(value, bool)),
    "plan_cache": Option(
        None, "a folder where plans are kept for later processes; None to keep none",
        str, lambda value: value is None or isinstance(value, (str, os.PathLike))),
    "plan_cache_bytes": Option(
        1 << 30, "the bytes that kept plans may take, of which those not used for longest go: a number of at least 0",
        int, lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0),
}


class Config:
    """The options (`OPTIONS`) as attributes. ``with eggshard.config(name=value):`` sets some for a block."""

    __slots__ = ("_set", "_within")

    def __init__(self) -> None:
        object.__setattr__(self, "_set", {})
        object.__setattr__(self, "_within", ContextVar("eggshard.config", default=MappingProxyType({})))

    def __getattr__(self, name: str) -> Any:
        option = _option(name)
        for values in (self._within.get(), self._set):
            if name in values:
                return values[name]
        text = os.environ.get(variable(name), "")
        if not text:
            return option.default
        try:
            return option.checked(name, option.read(text))
        except (ValueError, ConfigError):
            raise ConfigError(f"the variable {variable(name)} cannot be {text!r}: {option.says}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self._set[name] = _option(name).checked(name, value)

    @contextmanager
    def __call__(self, **options: Any) -> Iterator[None]:
        values = {name: _option(name).checked(name, value) for name, value in options.items()}
        token = self._within.set({**self._within.get(), **values})
        try:
            yield
        finally:
            self._within.reset(token)

    def __dir__(self) -> list[str]:
        return sorted(OPTIONS)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in OPTIONS)
        return f"<eggshard.config: {values}>"

    def key(self) -> tuple[Any, ...]:
        """What tells settings apart that were made in Python; variables are taken for constant."""
        within = self._within.get()
        return tuple(sorted({**self._set, **within}.items())) if self._set or within else ()


def variable(name: str) -> str:
    """The environment variable of an option."""
    return f"EGGSHARD_{name.upper()}"


def _option(name: str) -> Option:
    if name not in OPTIONS:
        raise ConfigError(f"eggshard.config has no option {name!r}; there are {', '.join(OPTIONS)}")
    return OPTIONS[name]


config = Config()
