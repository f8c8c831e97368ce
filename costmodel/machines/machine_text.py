"""Writer of machines as TOML, in the form that `machine_files` reads."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any

from eggshard.costmodel.compute import Compute
from eggshard.costmodel.machines.machine import Level, Machine, Protocol


def to_toml(machine: Machine, comment: str = "") -> str:
    """A machine as the text of a file; comment: lines that it begins with."""
    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    lines.append(f"name = {_text(machine.name)}")
    lines += [f"{k} = {_text(v)}" for k, v in (("devices", machine.devices), ("capacity", machine.capacity),
                                              ("overlap", machine.overlap)) if v]
    lines += _table("axes", machine.axes)
    lines += _compute("compute", machine.compute)
    for level in machine.levels:
        lines += ["", "[[levels]]", f"name = {_text(level.name)}", f"fabric = {_text(level.fabric.kind)}"]
        lines += _fields(level, ("name", "fabric")) + _fields(level.fabric)
    for protocol in machine.protocols if machine.protocols != (Protocol(),) else ():
        lines += ["", "[[protocols]]", *_fields(protocol, always=("name",))]
    lines += _table("sources", machine.sources)
    for told in machine.disagreements:
        lines += ["", "[[disagreements]]", *(f"{k} = {_text(v)}" for k, v in told.items())]
    return "\n".join(lines) + "\n"


def _compute(key: str, compute: Compute, general: Compute | None = None) -> list[str]:
    """The tables of rates; those of an op are as the ``general`` ones in what its table does not state."""
    unlike = [] if general is None else [f.name for f in fields(Compute)
                                         if getattr(compute, f.name) != getattr(general, f.name)]
    lines = ["", f"[{key}]", *_fields(compute, ("flops", "ops", "like"), unlike),
             *_table(f"{key}.flops", compute.flops), *_table(f"{key}.like", compute.like)]
    for op, own in compute.ops.items():
        lines += _compute(f"{key}.ops.{_key(op)}", own, compute)
    return lines


def _fields(value: Level | Protocol | Compute | Any, without: tuple[str, ...] = (),
            always: Collection[str] = ()) -> list[str]:
    """The fields of a dataclass that are not as they are by default."""
    given = ((f, getattr(value, f.name)) for f in fields(value) if f.name not in without)
    return [f"{f.name} = {_text(v)}" for f, v in given if f.default is MISSING or v != f.default or f.name in always]


def _table(key: str, values: Mapping[str, Any]) -> list[str]:
    return ["", f"[{key}]", *(f"{_key(k)} = {_text(v)}" for k, v in values.items())] if values else []


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else json.dumps(key)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(_items(value)) + " }"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(map(_text, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _items(value: Mapping[str, Any]) -> Iterator[str]:
    return (f"{_key(k)} = {_text(v)}" for k, v in value.items())
