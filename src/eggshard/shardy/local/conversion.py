"""The state of a global-to-local conversion: the layouts of a module's values, with ops replaced one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxlib.mlir import ir

from eggshard.errors import ShardingError
from eggshard.frontends.stablehlo.module_reader import short_location
from eggshard.program.axes import Axes
from eggshard.program.mesh import Mesh
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.program.types import TOKEN, TensorType
from eggshard.shardy.local.collectives import CollectiveOptions
from eggshard.shardy.local.decisions import Refusal
from eggshard.shardy.local.emission import channels
from eggshard.shardy.local.layouts import Layout, same_layout
from eggshard.shardy.local.splicing import Splicer
from eggshard.shardy.module import ShardyModule, function_type, symbol, uses
from eggshard.steps.steps import Action

#: What converts an op of a conversion.
Handler = Callable[["Conversion", Any], None]
RETURNS = ("func.return", "stablehlo.return", "sdy.return")
#: What brings operands and results of an op to where the op needs them.
RESHARDS = "run insert-explicit-reshards and reshard-to-collectives first"


class Conversion:
    """Values keep the layout of their global type while their own type becomes local.

    `layouts` has every value met so far, `signatures` the arguments and results of every function, `combined` the axes
    over which values are reduced that their module reduces only afterwards, `given` what collectives make of arguments.
    `handlers` convert ops by name, `ordinary` all others.
    """

    def __init__(self, module: ShardyModule, options: CollectiveOptions, handlers: Mapping[str, Handler],
                 ordinary: Handler) -> None:
        self.handlers, self.ordinary = handlers, ordinary
        self.module, self.options, self.meshes = module, options, module.meshes
        self.splicer = Splicer(channels(module))
        self.layouts: dict[Any, Layout] = {}
        self.combined: dict[Any, Axes] = {}
        self.given: set[Any] = set()
        self.signatures = {symbol(function): self._signature(function) for function in module.functions}

    def _signature(self, function: Any) -> tuple[list[Layout], list[Layout]]:
        types = function_type(function)
        name = symbol(function)
        arguments = zip(types.inputs, self.module.argument_shardings(function), strict=True)
        results = zip(types.results, self.module.function_result_shardings(function), strict=True)
        return (
            [self.stated(tensor_type(t), s, f"argument {i} of @{name}") for i, (t, s) in enumerate(arguments)],
            [self.stated(tensor_type(t), s, f"result {i} of @{name}") for i, (t, s) in enumerate(results)],
        )

    # -- layouts -----------------------------------------------------------------------------------------------------

    def stated(self, type_: TensorType, sharding: TensorSharding | None, what: str) -> Layout:
        """What a sharding says of a tensor of this global type; whole where nothing is said."""
        if sharding is None or type_.dtype == TOKEN:
            return Layout.whole(type_)
        return Layout.of(type_, sharding, self.meshes, what)

    def results_stated(self, op: Any) -> list[Layout]:
        """What an op says of its results, which are still of their global types."""
        shardings = self.module.result_shardings(op) or (None,) * len(op.results)
        if len(shardings) != len(op.results):
            raise Refusal(f"it has {len(op.results)} results and states {len(shardings)} shardings")
        pairs = enumerate(zip(op.results, shardings, strict=True))
        return [self.stated(tensor_type(value.type), sharding, f"result {i}") for i, (value, sharding) in pairs]

    def layout(self, value: Any) -> Layout:
        """The layout of a value met before."""
        return self.layouts[value]

    def settle(self, value: Any, layout: Layout) -> None:
        """Give a value its layout, and the type of its shard."""
        self.layouts[value] = layout
        if isinstance(value.type, ir.RankedTensorType) and layout.local.shape != tuple(value.type.shape):
            value.set_type(ir.RankedTensorType.get(layout.local.shape, value.type.element_type))

    def replace(self, op: Any, values: Sequence[Any], layouts: Sequence[Layout]) -> None:
        """Put values in the place of an op's results, and take the op away."""
        for old, new, layout in zip(op.results, values, layouts, strict=True):
            old.replace_all_uses_with(new)
            self.layouts[new] = layout
        op.erase()

    def require(self, value: Any, wanted: Layout, what: str) -> None:
        """Refusal unless a value lies as is wanted."""
        found = self.layout(value)
        if not same_layout(found, wanted):
            remedy = RESHARDS if found.unreduced == wanted.unreduced else "put an sdy.all_reduce before it"
            raise Refusal(f"{what} ({found.type}) is sharded as {found} and wanted as {wanted}; {remedy}")

    def after(self, op: Any, value: Any, mesh: Mesh, actions: Sequence[Action], layout: Layout) -> None:
        """Give the users of an op's result what actions make of it."""
        users = uses(value)
        new = self.splicer.act(mesh, actions, value, self.layout(value).local, op, after=True)
        for user, number in users:
            user.operands[number] = new
        self.layouts[new] = layout

    def mesh_name(self, op: Any) -> str:
        """The symbol of a collective's mesh, if groups of devices are to be written as its axes."""
        sharding = (self.module.result_shardings(op) or (None,))[0]
        return str(sharding.mesh) if self.options.mesh_groups and sharding and isinstance(sharding.mesh, str) else ""

    # -- ops ---------------------------------------------------------------------------------------------------------

    def block(self, block: Any, returned: Sequence[Layout]) -> None:
        """Convert the ops of a block, whose terminator returns values of these layouts."""
        for op in [op.operation for op in block.operations]:
            where = f"{op.name}{_place(op)}"
            try:
                if op.name in RETURNS:
                    for i, (value, layout) in enumerate(zip(op.operands, returned, strict=True)):
                        self.require(value, layout, f"operand {i}")
                else:
                    self.handlers.get(op.name, self.ordinary)(self, op)
            except Refusal as reason:
                raise _located(ShardingError(f"{where}: {reason}")) from None
            except ShardingError as error:
                raise error if error.located else _located(ShardingError(f"{where}: {error}")) from None


def tensor_type(type_: Any) -> TensorType:
    """A tensor's type; that of a token stands for everything else, which is never sharded."""
    if not isinstance(type_, ir.RankedTensorType):
        return TensorType((), TOKEN)
    return TensorType(tuple(type_.shape), str(type_.element_type))


def _place(op: Any) -> str:
    location = short_location(op.location)
    return f" ({location})" if location else ""


def _located(error: ShardingError) -> ShardingError:
    error.located = True
    return error
