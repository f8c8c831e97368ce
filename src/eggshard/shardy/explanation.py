"""Who decided where each value lies: Shardy's propagation, the origin of every axis, and the reshards that follow."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from eggshard.extras import check_shardy, named_extras
from eggshard.tables import Shown, render, size

#: What origins of axes are called in Shardy's notes, and here.
_ENDS = {"input": "argument", "output": "result"}
_RESHARDS = "insert-explicit-reshards{enable-full-version=true},canonicalize-reshards{common=false}"
#: Ops whose results nobody asks about.
_SILENT = ("stablehlo.constant", "sdy.constant", "stablehlo.return", "func.return", "sdy.return")


class Decided(NamedTuple):
    """A value: what makes it, its type and sharding as MLIR writes them, and per axis who decided it.

    where: the author's line, empty where the program does not say.
    """

    value: str
    type: str
    sharding: str
    axes: Mapping[str, str]
    where: str


class Moved(NamedTuple):
    """A reshard that propagation leaves to do: an op takes or gives a value elsewhere than it lies.

    had, wanted: the shardings before and behind it. bytes: what the busiest device receives for it.
    """

    op: str
    what: str
    had: str
    wanted: str
    bytes: float
    where: str


@dataclass(frozen=True, repr=False)
class Propagation(Shown):
    """Every value of a program with who decided its sharding, and the reshards where decisions differ.

    An axis was decided by an argument, a result or a constraint that states it, from which it was propagated.
    """

    values: tuple[Decided, ...]
    moved: tuple[Moved, ...]

    def of(self, text: str) -> Propagation:
        """Only the values and reshards whose op or line has this text in it."""
        return Propagation(tuple(row for row in self.values if text in f"{row.value} {row.where}"),
                           tuple(row for row in self.moved if text in f"{row.op} {row.where}"))

    def __str__(self) -> str:
        from rich.table import Table

        values = Table("value", "type", "sharding", "decided by", "line", box=None, pad_edge=False)
        for (type_, sharding, axes, where), rows in groupby(self.values, lambda row: row[1:]):
            names = [row.value for row in rows]
            by: dict[str, list[str]] = {}
            for axis, who in axes.items():
                by.setdefault(who, []).append(axis)
            shown = "; ".join(f"{', '.join(which)}: {who}" for who, which in by.items())
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            values.add_row(names[0] + more, type_, sharding, shown or "nobody", where)
        moved = Table("op", "moves", "from", "to", "received", "line", box=None, pad_edge=False)
        for move in self.moved:
            moved.add_row(move.op, move.what, move.had, move.wanted, size(move.bytes), move.where)
        head = f"{len(self.values)} values; {len(self.moved) or 'no'} reshards where decisions differ:"
        return render(values, head, *([moved] if self.moved else []))


@named_extras()
def explain_propagation(program: Any) -> Propagation:
    """Say who decided the sharding of every value, and which reshards are left where the decisions differ.

    program: as `optimize` takes it; of a ``jax.stages.Lowered`` the author's lines are known. It is propagated as
    Shardy does, and its reshards are those of Shardy's decision for each op. ProgramError and ShardingError for bad
    input.
    """
    from eggshard.shardy.catalogue import read_steps
    from eggshard.shardy.module import parsed
    from eggshard.shardy.pipelines import propagation_steps

    check_shardy()
    steps = ["chlo-legalize-to-stablehlo", "inline-calls", *propagation_steps(debug_sharding_origins=True)]
    places: dict[str, str] = {}
    with parsed(_with_lines(program)) as module:
        for step in read_steps(steps):
            step.run(module)
            places.update(_stated(module))
        values = tuple(_decided(module, places))
        for step in read_steps(_RESHARDS):
            step.run(module)
        return Propagation(values, tuple(_moved(module)))


def _with_lines(program: Any) -> str:
    """The module's text, with the author's lines if the program has any."""
    from eggshard.frontends import is_of_class
    from eggshard.shardy import module_text

    if is_of_class(program, "jax", "Lowered"):
        return str(program.as_text(debug_info=True))
    return module_text(program)


def _stated(module: Any) -> Iterator[tuple[str, str]]:
    """The constraints and manual computations that origins name, and where they stand."""
    from jaxlib.mlir import ir

    from eggshard.frontends.stablehlo.module_reader import short_location
    from eggshard.shardy.propagation.origins import NAME

    for op in module.walk("sdy.sharding_constraint", "sdy.manual_computation"):
        if NAME in op.attributes:
            yield ir.StringAttr(op.attributes[NAME]).value, _line(short_location(op.location))


def _decided(module: Any, places: Mapping[str, str]) -> Iterator[Decided]:
    """Every value with a sharding, in the text's order."""
    from eggshard.frontends.stablehlo.module_reader import short_location
    from eggshard.shardy.module import symbol
    from eggshard.shardy.propagation.origins import origins_of

    for function in module.functions:
        blocks = list(function.regions[0].blocks)
        for i, argument in enumerate(blocks[0].arguments if blocks else ()):
            name = short_location(argument.location)
            label = f"argument {i}" + (f" ({name})" if name else "") + ("" if symbol(function) == "main" else
                                                                       f" of @{symbol(function)}")
            yield from _row(module, argument, label, origins_of(module, argument), places, "")
    for op in module.walk():
        if op.name.startswith(_SILENT):
            continue
        for i, result in enumerate(op.results):
            name = "constraint" if op.name == "sdy.reshard" else op.name.removeprefix("stablehlo.")
            label = name + (f" #{i}" if len(op.results) > 1 else "")
            where = _line(short_location(op.location))
            yield from _row(module, result, label, origins_of(module, result), places, where)


def _row(
    module: Any, value: Any, label: str, origins: Mapping[str, str], places: Mapping[str, str], where: str
) -> Iterator[Decided]:
    sharding = module.sharding(value)
    if sharding is not None:
        axes = {axis: _who(origin, places) for axis, origin in origins.items()}
        shown = re.sub(r"^.*?, (\[.*\]).*>$", r"\1", str(sharding))
        yield Decided(label, str(value.type), shown, axes, where)


def _who(origin: str, places: Mapping[str, str]) -> str:
    """An origin as an argument, a result or a constraint with its line."""
    if origin == "self":
        return "itself"
    name, _, number = origin.partition(": ")
    if name in _ENDS:
        return f"{_ENDS[name]} {number}"
    found = next((place for key, place in places.items() if name == key or name.startswith(f"{key}_")), "")
    kind = "constraint" if name.startswith("constraint") else "manual computation"
    return f"{kind} at {found}" if found else f"{kind} {re.sub(r'[^0-9]', '', name)}"


def _line(location: str) -> str:
    """``file.py:16`` of a location; the name of the op where it has no file."""
    return location.rpartition(" at ")[2]


def _moved(module: Any) -> Iterator[Moved]:
    """The reshards that are there, at the ops that take their results, or made what they move."""
    from eggshard.frontends.stablehlo.module_reader import short_location
    from eggshard.shardy.module import uses

    for reshard in module.walk("sdy.reshard", "sdy.all_reduce"):
        users = uses(reshard.results[0])
        if not users:
            continue
        user, number = users[0]
        maker = reshard.operands[0].owner
        behind = reshard.name == "sdy.all_reduce" or user.name == "func.return"
        op = maker if behind and hasattr(maker, "name") else user
        what = "sums of its shards" if reshard.name == "sdy.all_reduce" else (
            f"result {number} of the program" if user.name == "func.return" else f"operand {number}")
        had, wanted = (module.sharding(value) for value in (reshard.operands[0], reshard.results[0]))
        texts = [re.sub(r"^.*?, (\[.*\].*)>$", r"\1", str(s)) if s is not None else "whole" for s in (had, wanted)]
        if reshard.name == "sdy.all_reduce" or had is None or wanted is None or had.axes != wanted.axes:
            yield Moved(op.name.removeprefix("stablehlo."), what, texts[0], texts[1], _bytes(module, reshard),
                        _line(short_location(op.location)))


def _bytes(module: Any, op: Any) -> float:
    """What the busiest device receives for a reshard, by Shardy's stages, or for an all-reduce."""
    from eggshard.shardy import transform
    from eggshard.shardy.module import parsed
    from eggshard.shardy.wire_bytes import module_bytes, op_bytes

    if op.name != "sdy.reshard":
        return op_bytes(module, op).busiest
    type_, (had, wanted) = op.operands[0].type, map(module.sharding, (op.operands[0], op.results[0]))
    stated = f" {{sdy.sharding = {had}}}" if had is not None else ""
    meshes = "\n".join(str(each) for each in module.module.body.operations if each.operation.name == "sdy.mesh")
    text = f"""{meshes}
      func.func @main(%a: {type_}{stated}) -> ({type_} {{sdy.sharding = {wanted}}}) {{
        %0 = sdy.reshard %a {str(wanted).removeprefix("#sdy.sharding")} : {type_}
        return %0 : {type_} }}"""
    with parsed(transform(text, "reshard-to-collectives")) as alone:
        return module_bytes(alone).busiest
