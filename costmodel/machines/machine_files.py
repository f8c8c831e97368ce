"""Machines as TOML files: the presets of this package, a user's own, and what `eggshard calibrate` saved.

A file holds the fields of `Machine` by their names, one ``[[levels]]`` per level with the fields of its fabric beside
``name``, ``fabric``, ``units``, ``algorithms`` and ``shared``, and one ``[[protocols]]`` per protocol. ``extends``
names a preset or a file whose machine this one is, with levels added outside and other keys replaced. ``[sources]``
says where constants are from, by their dotted names (``levels.node.bandwidth``); ``[[disagreements]]`` has what
others say.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from eggshard.costmodel.compute import Compute
from eggshard.costmodel.machines.machine import Level, Machine, Protocol
from eggshard.costmodel.machines.topologies import FABRICS
from eggshard.errors import CostModelError

_PRESETS = "presets"
_LEVEL = ("name", "fabric", "units", "algorithms", "shared")
_MACHINE = ("name", "levels", "compute", "protocols", "overlap", "capacity", "axes", "devices", "sources",
            "disagreements", "extends", "description")


@cache
def presets() -> tuple[str, ...]:
    """The names of the machines that come with this package."""
    folder = resources.files("eggshard.costmodel") / _PRESETS
    return tuple(sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml")))


@cache
def preset(name: str) -> Machine:
    """A machine by name; CostModelError lists the names for an unknown one."""
    if name not in presets():
        raise CostModelError(f"no preset {name!r}; there are {', '.join(presets())}")
    return replace(parse(_text_of(name), f"preset {name}"), origin="a preset, not calibrated")


def load(path: str | Path) -> Machine:
    """A machine from its file; CostModelError names the file, the key and the remedy."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CostModelError(f"{path}: cannot read this machine file: {error}") from None
    return replace(parse(text, str(path)), origin=Path(path).name)


def parse(text: str, where: str = "machine file") -> Machine:
    """A machine from the text of a file; where: what errors call it."""
    data = _complete(_table(text, where), where, ())
    _only(data, _MACHINE, where, "")
    levels = [_level(level, where, i) for i, level in enumerate(_tables(data, "levels", where, required=True))]
    protocols = [_fill(Protocol, p, where, f"protocols[{i}]") for i, p in enumerate(_tables(data, "protocols", where))]
    options: dict[str, Any] = {k: data[k] for k in ("overlap", "capacity", "axes", "sources") if k in data}
    options = {k: _number(v, where, k) if k in ("overlap", "capacity") else v for k, v in options.items()}
    machine: Machine = _made(
        lambda: Machine(
            _string(data.get("name"), where, "name"), tuple(levels),
            _compute(data.get("compute"), where, "compute"), tuple(protocols) or (Protocol(),),
            devices=tuple(data.get("devices", ())), disagreements=tuple(data.get("disagreements", ())), **options,
        ), where, "")
    return machine


def _text_of(name: str) -> str:
    return (resources.files("eggshard.costmodel") / _PRESETS / f"{name}.toml").read_text(encoding="utf-8")


def _table(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CostModelError(f"{where}: not TOML: {error}") from None


def _complete(data: dict[str, Any], where: str, above: tuple[str, ...]) -> dict[str, Any]:
    """The data with what it extends."""
    base = data.get("extends")
    if base is None:
        return data
    base = _string(base, where, "extends")
    if base in above:
        raise CostModelError(f"{where}: extends goes in circles: {' -> '.join((*above, base))}")
    if base in presets():
        text = _text_of(base)
    else:
        path = Path(where).parent / base
        if not path.is_file():
            raise CostModelError(f"{where}: extends = {base!r} is no preset and no file; presets are "
                                 f"{', '.join(presets())}")
        text = path.read_text(encoding="utf-8")
    known = _complete(_table(text, base), base, (*above, base))
    merged = {**known, **data}
    merged["levels"] = _levels(_tables(known, "levels", base), _tables(data, "levels", where))
    merged["sources"] = {**known.get("sources", {}), **data.get("sources", {})}
    merged["disagreements"] = [*known.get("disagreements", ()), *data.get("disagreements", ())]
    return merged


def _levels(known: Sequence[Mapping[str, Any]], given: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The levels of a machine that extends another: one of a name that is known changes that, others are outside it."""
    changes = {level.get("name"): level for level in given}
    names = {level.get("name") for level in known}
    return [*({**level, **changes.get(level.get("name"), {})} for level in known),
            *(level for level in given if level.get("name") not in names)]


def _level(data: Mapping[str, Any], where: str, i: int) -> Level:
    name = _string(data.get("name"), where, f"levels[{i}].name")
    key = f"levels.{name}"
    kind = data.get("fabric")
    if kind not in FABRICS:
        raise CostModelError(f"{where}: {key}.fabric is {kind!r}; give one of {', '.join(sorted(FABRICS))}")
    fabric = _fill(FABRICS[kind], {k: v for k, v in data.items() if k not in _LEVEL}, where, key)
    rest = _fill(Level, {k: v for k, v in data.items() if k in _LEVEL and k != "fabric"}, where, key, fabric=fabric)
    assert isinstance(rest, Level)
    return rest


def _compute(data: Any, where: str, key: str) -> Compute:
    if not isinstance(data, Mapping):
        raise CostModelError(f"{where}: {key} is missing; give a table [{key}] with flops and memory")
    flops = data.get("flops")
    if isinstance(flops, (int, float)):
        flops = {"default": flops}
    if not isinstance(flops, Mapping):
        raise CostModelError(f"{where}: {key}.flops is {flops!r}; give flops per second, or a table by element type")
    flops = {dtype: _number(rate, where, f"{key}.flops.{dtype}") for dtype, rate in flops.items()}
    general = {k: v for k, v in data.items() if k not in ("ops", "like")}
    ops = {op: _compute({**general, **own}, where, f"{key}.ops.{op}")
           for op, own in data.get("ops", {}).items()}
    made = _fill(Compute, {**data, "flops": flops, "ops": ops}, where, key)
    assert isinstance(made, Compute)
    return made


def _fill(cls: type, data: Mapping[str, Any], where: str, key: str, **others: Any) -> Any:
    """An instance of a dataclass from a table; lists become tuples."""
    known = {f.name: f for f in fields(cls)}
    _only(data, [k for k in known if k not in others], where, key)
    values = dict(others)
    for name, value in data.items():
        if str(known[name].type) in ("float", "int"):
            value = _number(value, where, f"{key}.{name}")
            value = int(value) if str(known[name].type) == "int" else value
        values[name] = tuple(value) if isinstance(value, list) else value
    missing = [n for n, f in known.items()
               if n not in values and f.default is MISSING and f.default_factory is MISSING]
    if missing:
        raise CostModelError(f"{where}: {key} lacks {', '.join(missing)}; add {'them' if missing[1:] else 'it'}")
    return _made(lambda: cls(**values), where, key)


def _made(make: Callable[[], Any], where: str, key: str) -> Any:
    try:
        return make()
    except CostModelError as error:
        if str(error).startswith(where):
            raise
        raise CostModelError(f"{where}: {key}{': ' if key else ''}{error}") from None


def _only(data: Mapping[str, Any], known: Iterable[str], where: str, key: str) -> None:
    unknown = sorted(set(data) - set(known))
    if unknown:
        raise CostModelError(
            f"{where}: unknown key {f'{key}.' if key else ''}{unknown[0]}; known are {', '.join(sorted(known))}")


def _tables(data: Mapping[str, Any], key: str, where: str, required: bool = False) -> list[Mapping[str, Any]]:
    found = data.get(key, [])
    if not isinstance(found, list) or not all(isinstance(t, Mapping) for t in found) or (required and not found):
        raise CostModelError(f"{where}: {key} is no list of tables; write [[{key}]] before each")
    return found


def _string(value: Any, where: str, key: str) -> str:
    if not isinstance(value, str) or not value:
        raise CostModelError(f"{where}: {key} is {value!r}; give a name in quotes")
    return value


def _number(value: Any, where: str, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise CostModelError(f"{where}: {key} is {value!r}; give a number")
    return float(value)
