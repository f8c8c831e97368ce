"""An MLIR module with Shardy's annotations, as passes see it: ops to walk, and the shardings of values.

jaxlib parses, verifies and prints; what is written here is where Shardy keeps the sharding of which value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from jax.interpreters import mlir as jax_mlir
from jaxlib.mlir import ir

from eggshard.errors import ProgramError
from eggshard.program.cursor import read_mesh
from eggshard.program.mesh import Mesh
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.attributes import per_value_text, read_axis_list, read_per_value

SHARDING, RULE = "sdy.sharding", "sdy.sharding_rule"
#: Shardy's collectives: those that only move shards, and those that make or reduce partial values.
MOVING = ("sdy.all_gather", "sdy.all_slice", "sdy.all_to_all", "sdy.collective_permute")
COLLECTIVES = (
    *MOVING, "sdy.all_reduce", "sdy.reduce_scatter", "sdy.replicated_to_unreduced", "sdy.sharded_to_unreduced")
#: Ops that state the sharding of a value, and leave it what it is.
HINTS = ("sdy.sharding_constraint", "sdy.reshard", "sdy.data_flow_edge", "sdy.func_data_flow_edge",
         "sdy.propagation_barrier")
#: Ops whose results' sharding is an attribute of their own, and its name.
OWN_SHARDING = {
    "sdy.sharding_constraint": "sharding", "sdy.reshard": "sharding", "sdy.data_flow_edge": "sharding",
    **dict.fromkeys(COLLECTIVES, "out_sharding"),
}
#: Ops with the shardings of their operands and results, which are their blocks' arguments and what the blocks return.
BODIES = ("sdy.manual_computation", "sdy.named_computation")
#: Ops whose operands flow into regions and out again, or through the op: data-flow edges stand at their targets.
DATA_FLOW = ("stablehlo.while", "stablehlo.case", "stablehlo.if", "stablehlo.optimization_barrier")


class ShardyModule:
    """A parsed module. Use it within `parsed`, which holds MLIR's context."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __str__(self) -> str:
        return self.text()

    def text(self) -> str:
        """The module as MLIR prints it. ProgramError if a pass has left it invalid."""
        try:
            self.module.operation.verify()
        except ir.MLIRError as error:
            raise ProgramError(f"the module does not verify: {first_complaint(error)}") from None
        return str(self.module.operation.get_asm())

    # -- ops ---------------------------------------------------------------------------------------------------------

    @property
    def functions(self) -> list[Any]:
        """The ``func.func`` operations, in order."""
        return [op.operation for op in self.module.body.operations if op.operation.name == "func.func"]

    @property
    def by_name(self) -> dict[str, Any]:
        """The functions by their names."""
        return {symbol(function): function for function in self.functions}

    @property
    def main(self) -> Any | None:
        """The only function, or the one called ``main``; None if there is neither."""
        functions = self.functions
        return functions[0] if len(functions) == 1 else self.by_name.get("main")

    def walk(self, *names: str, root: Any = None) -> list[Any]:
        """The operations with one of these names (all without names), each before those of its regions.

        The list is made before it is returned, so that ops may be erased while it is gone through.
        """
        return [op for op in _walk(root or self.module.operation) if not names or op.name in names]

    # -- meshes ------------------------------------------------------------------------------------------------------

    @property
    def meshes(self) -> dict[str, Mesh | int]:
        """The module's meshes by symbol; a maximal mesh is its device's id."""
        return {
            symbol(op.operation): read_mesh(str(op.operation.attributes["mesh"]))
            for op in self.module.body.operations if op.operation.name == "sdy.mesh"
        }

    def mesh(self, sharding: TensorSharding) -> Mesh:
        """The mesh of a sharding; one without axes if it is a single device.

        ProgramError if the module does not define it.
        """
        if isinstance(sharding.mesh, Mesh):
            return sharding.mesh
        meshes = self.meshes
        if sharding.mesh not in meshes:
            raise ProgramError(f"sharding {sharding} is on mesh @{sharding.mesh}, which the module does not define")
        found = meshes[sharding.mesh]
        return Mesh({}) if isinstance(found, int) else found

    def on_one_device(self, sharding: TensorSharding) -> bool:
        """Whether a whole tensor lies on one device, which its mesh is."""
        named = isinstance(sharding.mesh, str) and isinstance(self.meshes.get(sharding.mesh), int)
        return named or sharding.sharding.device is not None

    # -- shardings ---------------------------------------------------------------------------------------------------

    def sharding(self, value: Any) -> TensorSharding | None:
        """The sharding stated for a value, None if nothing is (which Shardy takes as fully open)."""
        if isinstance(value, ir.BlockArgument):
            return self._of_argument(ir.BlockArgument(value))
        result = ir.OpResult(value)
        found = self.result_shardings(result.owner.operation if hasattr(result.owner, "operation") else result.owner)
        return found[result.result_number] if found else None

    def set_sharding(self, value: Any, sharding: TensorSharding | None) -> None:
        """State a value's sharding where Shardy keeps it; None takes it away. ProgramError where none can stand.

        Of several results of one op, those that had none then have a fully open one, as Shardy's setter does.
        """
        if isinstance(value, ir.BlockArgument):
            self._set_argument(ir.BlockArgument(value), sharding)
            return
        result = ir.OpResult(value)
        op = result.owner.operation
        own = OWN_SHARDING.get(op.name)
        if own:
            op.attributes[own] = ir.Attribute.parse(str(sharding))
            return
        found: list[TensorSharding | None] = list(self.result_shardings(op) or [None] * len(op.results))
        found[result.result_number] = sharding
        self.set_result_shardings(op, found)

    def result_shardings(self, op: Any) -> tuple[TensorSharding, ...] | None:
        """The shardings of an op's results, None if nothing is stated."""
        own = OWN_SHARDING.get(op.name)
        name = own or ("out_shardings" if op.name in BODIES else SHARDING)
        if name not in op.attributes:
            return None
        text = str(op.attributes[name])
        return (TensorSharding.parse(text),) if own else read_per_value(text)

    def set_result_shardings(self, op: Any, shardings: Sequence[TensorSharding | None]) -> None:
        """State the shardings of all results of an op; without any the attribute goes."""
        name = "out_shardings" if op.name in BODIES else SHARDING
        stated = [s for s in shardings if s is not None]
        if not stated:
            if name in op.attributes:
                del op.attributes[name]
            return
        filled = [
            s or TensorSharding.fully_open(stated[0].mesh, rank(result))
            for s, result in zip(shardings, op.results, strict=True)
        ]
        op.attributes[name] = ir.Attribute.parse(per_value_text(filled))

    def _of_argument(self, argument: Any) -> TensorSharding | None:
        op = argument.owner.owner.operation
        if op.name == "func.func":
            return self.argument_shardings(op)[int(argument.arg_number)]
        if op.name == "stablehlo.while":  # what a loop carries lies as its result
            return self.sharding(op.results[argument.arg_number])
        if op.name in BODIES and "in_shardings" in op.attributes:
            sharding = read_per_value(str(op.attributes["in_shardings"]))[argument.arg_number]
            return TensorSharding(sharding.mesh, sharding.sharding.without(manual_axes(op)))
        return None

    def _set_argument(self, argument: Any, sharding: TensorSharding | None) -> None:
        op, number = argument.owner.owner.operation, argument.arg_number
        if op.name == "sdy.named_computation" and sharding is not None:
            stated = read_per_value(str(op.attributes["in_shardings"])) if "in_shardings" in op.attributes else [
                TensorSharding.fully_open(sharding.mesh, rank(operand)) for operand in op.operands]
            listed = [sharding if i == number else other for i, other in enumerate(stated)]
            op.attributes["in_shardings"] = ir.Attribute.parse(per_value_text(listed))
            return
        if op.name != "func.func":
            raise ProgramError(f"a block argument of {op.name} has no sharding of its own; its data-flow edge has one")
        self.set_argument_sharding(op, number, sharding)

    def argument_shardings(self, function: Any) -> list[TensorSharding | None]:
        """The shardings of a function's arguments."""
        return _shardings(function, "arg_attrs")

    def function_result_shardings(self, function: Any) -> list[TensorSharding | None]:
        """The shardings of a function's results."""
        return _shardings(function, "res_attrs")

    def set_argument_sharding(self, function: Any, number: int, sharding: TensorSharding | None) -> None:
        """State the sharding of a function's argument."""
        set_entry(function, "arg_attrs", number, SHARDING, sharding and ir.Attribute.parse(str(sharding)))

    def set_function_result_sharding(self, function: Any, number: int, sharding: TensorSharding | None) -> None:
        """State the sharding of a function's result."""
        set_entry(function, "res_attrs", number, SHARDING, sharding and ir.Attribute.parse(str(sharding)))


@contextmanager
def parsed(text: str) -> Iterator[ShardyModule]:
    """The module of a text, within MLIR's context. ProgramError or ShardingError for malformed text."""
    from eggshard.frontends.stablehlo.reading import parse_module

    with jax_mlir.make_ir_context() as context, ir.Location.unknown():
        context.allow_unregistered_dialects = True
        yield ShardyModule(parse_module(text))


def rank(value: Any) -> int:
    """The rank of a value's tensor type; 0 for tokens and other types."""
    return int(value.type.rank) if isinstance(value.type, ir.RankedTensorType) else 0


def shape(value: Any) -> tuple[int, ...]:
    """The shape of a value's tensor type; () for tokens and other types."""
    return tuple(value.type.shape) if isinstance(value.type, ir.RankedTensorType) else ()


def elements(value: Any) -> int:
    """The number of elements of a value."""
    return math.prod(shape(value))


def manual_axes(op: Any) -> tuple[str, ...]:
    """The manual axes of a manual computation; none of any other op."""
    if "manual_axes" not in op.attributes:
        return ()
    return tuple(axis.name for axis in read_axis_list(str(op.attributes["manual_axes"])))


def create(
    name: str, operands: Sequence[Any], types: Sequence[Any], attributes: Mapping[str, Any], at: Any,
    regions: int = 0, location: Any = None,
) -> Any:
    """A new operation at an insertion point, or in front of an op.

    Attributes are given as MLIR text or as MLIR has them; regions are empty.
    """
    parsed_attributes = {
        key: ir.Attribute.parse(given) if isinstance(given, str) else given for key, given in attributes.items()}
    return ir.Operation.create(
        name, results=list(types), operands=list(operands), attributes=parsed_attributes, regions=regions, loc=location,
        ip=at if isinstance(at, ir.InsertionPoint) else ir.InsertionPoint(at))


def behind(value: Any) -> Any:
    """The point from which on a value can be used: behind its op, or at the beginning of the block it is given to."""
    if isinstance(value, ir.BlockArgument):
        return ir.InsertionPoint.at_block_begin(ir.BlockArgument(value).owner)
    return ir.InsertionPoint.after(ir.OpResult(value).owner)


def uses(value: Any) -> list[tuple[Any, int]]:
    """The (operation, operand number) pairs that use a value."""
    return [(use.owner.operation, use.operand_number) for use in value.uses]


def _walk(operation: Any) -> Iterator[Any]:
    yield operation
    for region in operation.regions:
        for block in region.blocks:
            for op in block.operations:
                yield from _walk(op.operation)


def symbol(op: Any) -> str:
    """The name of a function's, or another symbol's, op."""
    return str(ir.StringAttr(op.attributes["sym_name"]).value)


def callee(call: Any) -> str:
    """The name of the function that is called."""
    return str(ir.FlatSymbolRefAttr(call.attributes["callee"]).value)


def maker(value: Any, *names: str) -> Any:
    """The op that makes a value, of one of these names if any are given; None of others, and of block arguments."""
    if isinstance(value, ir.BlockArgument):
        return None
    op = value.owner.operation if hasattr(value.owner, "operation") else value.owner
    return op if not names or op.name in names else None


def function_type(function: Any) -> Any:
    """A function's MLIR type: its ``inputs`` and ``results``."""
    return ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)


def entries(function: Any, key: str) -> list[Any]:
    """The attributes of each argument (``arg_attrs``) or result (``res_attrs``) of a function."""
    if key in function.attributes:
        return [ir.DictAttr(entry) for entry in ir.ArrayAttr(function.attributes[key])]
    type_ = function_type(function)
    return [ir.DictAttr.get({}) for _ in (type_.inputs if key == "arg_attrs" else type_.results)]


def set_entry(function: Any, key: str, number: int, name: str, attribute: Any) -> None:
    """Give an attribute to an argument or result of a function; None takes it away."""
    given = entries(function, key)
    entry = {named.name: named.attr for named in given[number] if named.name != name}
    changed = ir.DictAttr.get(entry if attribute is None else {**entry, name: attribute})
    if changed == given[number]:  # functions may have hundreds of arguments, and their attribute is one list
        return
    given[number] = changed
    if any(map(len, given)):
        function.attributes[key] = ir.ArrayAttr.get(given)
    else:
        del function.attributes[key]


def _shardings(function: Any, key: str) -> list[TensorSharding | None]:
    return [TensorSharding.parse(str(e[SHARDING])) if SHARDING in e else None for e in entries(function, key)]


def first_complaint(error: Any) -> str:
    """What an MLIRError says first."""
    diagnostics = getattr(error, "error_diagnostics", None)
    return diagnostics[0].message if diagnostics else str(error)


def inside_first(root: Any) -> list[Any]:
    """All operations, those of regions before the op that has the regions."""
    listed: list[Any] = []

    def visit(op: Any) -> None:
        for region in op.regions:
            for block in region.blocks:
                for inner in block.operations:
                    visit(inner.operation)
        listed.append(op)

    visit(root)
    return listed
