"""Who decided where each value lies: Shardy's propagation, the origin of every axis, conflicts, and reshards."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from eggshard.extras import check_shardy

if TYPE_CHECKING:
    from eggshard.shardy.explanation.axis_origins import AxisOrigins
    from eggshard.shardy.explanation.conflicts import Rejection

_RESHARDS = "insert-explicit-reshards{enable-full-version=true},canonicalize-reshards{common=false}"
_RETURN = "func.return"
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

    A reshard of a reshard is one. had, wanted: the shardings before and behind it. bytes: what the busiest device
    receives for it.
    """

    op: str
    what: str
    had: str
    wanted: str
    bytes: float
    where: str


class Conflict(NamedTuple):
    """An op that computes with other axes than one of its values has, since two decisions want them.

    what: the operand or result. sharding: that of the value; used: the one that the op computes with. kept: per axis of
    the op who wanted it, empty where none did and the op is what leaves no choice; rejected: per axis of the value that
    the op does not compute with who wanted it, empty where a result may not have the op's axes. bytes: what the busiest
    device receives for the reshard between the two, by itself.
    """

    op: str
    what: str
    sharding: str
    used: str
    kept: Mapping[str, tuple[str, ...]]
    rejected: Mapping[str, tuple[str, ...]]
    bytes: float
    where: str


class Found(NamedTuple):
    """What `propagated` finds. name: of the module."""

    name: str
    values: tuple[Decided, ...]
    conflicts: tuple[Conflict, ...]
    moved: tuple[Moved, ...]


def propagated(program: Any) -> Found:
    """Propagate a program as Shardy does, and read who decided what off the module.

    program: as `optimize` takes it. ProgramError and ShardingError for bad input.
    """
    from eggshard.shardy.catalogue import read_steps
    from eggshard.shardy.explanation.axis_origins import AxisOrigins
    from eggshard.shardy.explanation.conflicts import mark, rejections
    from eggshard.shardy.module import parsed, symbol
    from eggshard.shardy.pipelines import propagation_steps

    check_shardy()
    steps = ["chlo-legalize-to-stablehlo", "inline-calls", *propagation_steps(debug_sharding_origins=True)]
    with parsed(_with_lines(program)) as module:
        origins = AxisOrigins(module)
        for step in read_steps(steps):
            step.run(module)
            origins.read(module)
        values, sizes = tuple(_decided(module, origins)), _Bytes(module)
        mark(module)
        inserted, joined = read_steps(_RESHARDS)
        inserted.run(module)
        conflicts = tuple(_conflict(sizes, origins, each) for each in rejections(module, origins))
        joined.run(module)
        top = module.module.operation
        name = symbol(top) if "sym_name" in top.attributes else "the program"
        return Found(name, values, conflicts, tuple(_moved(module, sizes)))


def _with_lines(program: Any) -> str:
    """The module's text, with the author's lines if the program has any."""
    from eggshard.frontends import is_of_class
    from eggshard.shardy import module_text

    if is_of_class(program, "jax", "Lowered"):
        return str(program.as_text(debug_info=True))
    return module_text(program)


def _decided(module: Any, origins: AxisOrigins) -> Iterator[Decided]:
    """Every value with a sharding, in the text's order."""
    from eggshard.shardy.explanation.axis_origins import in_brackets, place
    from eggshard.shardy.module import symbol

    for function in module.functions:
        of = "" if symbol(function) == "main" else f" of @{symbol(function)}"
        blocks = list(function.regions[0].blocks)
        for i, argument in enumerate(blocks[0].arguments if blocks else ()):
            yield from _row(module, origins, argument, f"argument {i}{in_brackets(argument.location)}{of}", "")
    for op in module.walk():
        if op.name.startswith(_SILENT):
            continue
        for i, result in enumerate(op.results):
            label = _name(op) + (f" #{i}" if len(op.results) > 1 else "")
            yield from _row(module, origins, result, label, place(op))


def _row(module: Any, origins: AxisOrigins, value: Any, label: str, where: str) -> Iterator[Decided]:
    sharding = module.sharding(value)
    if sharding is not None:
        axes = {axis: origins.who(origin) for axis, origin in origins.of(value).items()}
        yield Decided(label, str(value.type), _dims(sharding), axes, where)


def _conflict(sizes: _Bytes, origins: AxisOrigins, found: Rejection) -> Conflict:
    """A rejection in words."""
    from eggshard.shardy.explanation.axis_origins import place

    kept, rejected = ({axis: origins.in_words(names) for axis, names in axes.items()}
                      for axes in (found.kept, found.rejected))
    name, what = (_name(found.op), f"result {found.number}") if found.is_result else _operand(found.op, found.number)
    return Conflict(name, what, _dims(found.had), _dims(found.used), kept, rejected,
                    sizes.received(found.reshard), place(_author(found.op, found.number)))


def _moved(module: Any, sizes: _Bytes) -> Iterator[Moved]:
    """The reshards that are there, at the ops that take their results, or made what they move."""
    from eggshard.shardy.explanation.axis_origins import place
    from eggshard.shardy.module import maker, uses
    from eggshard.shardy.propagation.origins import NAME

    for reshard in module.walk("sdy.reshard", "sdy.all_reduce"):
        users = uses(reshard.results[0])
        if not users:
            continue
        user, number = users[0]
        had, wanted = (module.sharding(value) for value in (reshard.operands[0], reshard.results[0]))
        if reshard.name == "sdy.all_reduce":
            op, name, what = maker(reshard.operands[0]) or user, "", "sums of its shards"
        elif had is not None and wanted is not None and had.axes == wanted.axes:
            continue
        else:
            op = reshard if NAME in reshard.attributes else user
            name, what = _operand(op, 0 if op is reshard else number)
        where = place(_author(op, number))
        yield Moved(name or _name(op), what, _dims(had), _dims(wanted), sizes.received(reshard), where)


# -- words -----------------------------------------------------------------------------------------------------------


def _name(op: Any) -> str:
    return "constraint" if op.name == "sdy.reshard" else op.name.removeprefix("stablehlo.").removeprefix("sdy.")


def _operand(op: Any, number: int) -> tuple[str, str]:
    """What an op's operand is of, and what it is called."""
    if op.name == _RETURN:
        return "program", f"result {number}"
    if op.name.endswith(".return"):
        return _name(op.parent.operation), f"result {number} of its body"
    return _name(op), f"operand {number}"


def _author(op: Any, number: int) -> Any:
    """The op whose line the author knows: of a result of the program, that which makes it."""
    from eggshard.shardy.module import maker

    return maker(op.operands[number]) or op if op.name == _RETURN else op


def _dims(sharding: Any) -> str:
    """A sharding's dimensions, and what follows them, without its mesh."""
    return "whole" if sharding is None else re.sub(r"^.*?, (\[.*\].*)>$", r"\1", str(sharding))


# -- bytes -----------------------------------------------------------------------------------------------------------


class _Bytes:
    """What the busiest device receives for reshards of a module, by Shardy's stages, and for all-reduces."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._meshes = "\n".join(str(op) for op in module.module.body.operations if op.operation.name == "sdy.mesh")

    def received(self, op: Any) -> float:
        """By the busiest device, for one op."""
        from eggshard.shardy.wire_bytes import op_bytes

        if op.name != "sdy.reshard":
            return op_bytes(self._module, op).busiest
        type_, (had, wanted) = op.operands[0].type, map(self._module.sharding, (op.operands[0], op.results[0]))
        stated = f" {{sdy.sharding = {had}}}" if had is not None else ""
        return _received(f"""{self._meshes}
          func.func @main(%a: {type_}{stated}) -> ({type_} {{sdy.sharding = {wanted}}}) {{
            %0 = sdy.reshard %a {str(wanted).removeprefix("#sdy.sharding")} : {type_}
            return %0 : {type_} }}""")


@lru_cache(maxsize=1024)
def _received(text: str) -> float:
    """What the busiest device receives in a module of reshards; layers of a model have equal ones."""
    from eggshard.shardy import transform
    from eggshard.shardy.module import parsed
    from eggshard.shardy.wire_bytes import module_bytes

    with parsed(transform(text, "reshard-to-collectives")) as alone:
        return module_bytes(alone).busiest
