"""Programs partitioned as Shardy's partitioner does: the plain StableHLO of one device, for whatever compiles it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from eggshard.errors import CostModelError, ProgramError
from eggshard.extras import check_shardy, named_extras
from eggshard.tables import Shown, render, size

if TYPE_CHECKING:
    from eggshard.costmodel.protocol import CostModel
    from eggshard.program.mesh import Mesh
    from eggshard.shardy.local.wrapping import End
    from eggshard.shardy.wire_bytes import WireBytes

MODES = ("shardy", "global")
#: The part of the modelled time that a plan which sends more bytes must save: models of time err by more than bytes.
_SAVED = 0.05
#: A sharding of GSPMD's with tiles.
_GSPMD = re.compile(r'mhlo\.sharding = "[^"]*devices=')


@dataclass(frozen=True, repr=False)
class Partitioned(Shown):
    """The program of one device.

    text: plain StableHLO of local shapes, with StableHLO's collectives over logical device numbers, and nothing of
    Shardy's. annotated: the same with the mesh, and the shardings of arguments and results.
    """

    mode: str
    annotated: str

    @cached_property
    def text(self) -> str:
        """The module of one device."""
        from eggshard.shardy import transform

        return transform(self.annotated, "drop-sharding-and-mesh")

    @cached_property
    def inputs(self) -> tuple[End, ...]:
        """The arguments of ``@main``."""
        return self._ends[0]

    @cached_property
    def outputs(self) -> tuple[End, ...]:
        """The results of ``@main``."""
        return self._ends[1]

    @cached_property
    def mesh(self) -> Mesh:
        """The mesh over which the program is partitioned; without axes if it has none."""
        from eggshard.shardy.local.wrapping import boundary_mesh
        from eggshard.shardy.module import parsed

        with parsed(self.annotated) as module:
            return boundary_mesh(module)

    @cached_property
    def bytes(self) -> WireBytes:
        """What its collectives send in a run, by ring formulas."""
        from eggshard.shardy.module import parsed
        from eggshard.shardy.wire_bytes import module_bytes

        with parsed(self.annotated) as module:
            return module_bytes(module)

    def seconds(self, model: CostModel) -> float:
        """Seconds of a run by a cost model."""
        from eggshard.shardy.modelled import local_seconds
        from eggshard.shardy.module import parsed

        with parsed(self.annotated) as module:
            return local_seconds(module, model)

    @cached_property
    def collectives(self) -> Counter[str]:
        """How many collectives of each kind the text has."""
        from eggshard.shardy.module import parsed
        from eggshard.shardy.wire_bytes import STABLEHLO

        with parsed(self.annotated) as module:
            return Counter(op.name.removeprefix("stablehlo.") for op in module.walk(*STABLEHLO))

    @named_extras()
    def to_jax(self) -> Callable[..., list[Any]]:
        """A function of global arrays that runs the text on JAX's devices, as it is: XLA partitions nothing anew.

        It takes the arguments of ``@main`` in order, and gives a list of its results; `jax.jit` and `jax.device_put`
        are as usual. LoweringError for arguments of other types.
        """
        from eggshard.emit.jax_primitive import DeviceModule, call_module
        from eggshard.shardy.local.wrapping import whole_program

        whole = whole_program(self.annotated)
        types = [tuple(end.type for end in side) for side in (self.inputs, self.outputs)]
        module = DeviceModule(
            "partitioned", lambda platform: whole, max(1, self.mesh.size), types[0], types[1],
            tuple(self.mesh.axes.items()), (None,) * len(types[1]))

        def run(*arrays: Any) -> list[Any]:
            return call_module(module, arrays)

        return run

    @cached_property
    def _ends(self) -> tuple[tuple[End, ...], tuple[End, ...]]:
        from eggshard.shardy.local.wrapping import boundary
        from eggshard.shardy.module import parsed

        with parsed(self.annotated) as module:
            return boundary(module)

    def __str__(self) -> str:
        from rich.table import Table

        sent, kinds = self.bytes, ", ".join(f"{n} {kind}" for kind, n in sorted(self.collectives.items()))
        devices = f"{self.mesh.size} devices" + (f" ({axes})" if (axes := _axes(self.mesh)) else "")
        head = (f"The program of one of {devices}, partitioned by mode={self.mode}.\n"
                f"{size(sent.busiest)} received by the busiest device; {kinds or 'no collectives'}")
        table = Table("", "type", "of a device", "sharding", box=None, pad_edge=False)
        for name, side in (("argument", self.inputs), ("result", self.outputs)):
            for i, end in enumerate(side):
                table.add_row(f"{name} {i}", str(end.type), str(end.local), end.sharding)
        return render(head, table)


def _axes(mesh: Mesh) -> str:
    return ", ".join(f"{name}={n}" for name, n in mesh.axes.items())


@named_extras()
def partition(
    program: Any, *, mode: str = "shardy", enable_halo_exchange: bool = True, cost_model: CostModel | str | None = None,
) -> Partitioned:
    """The program of one device as plain StableHLO with explicit collectives, as other back ends take it.

    program: as `optimize` takes it; open shardings are propagated. mode: ``shardy``, every op decided by itself as
    Shardy's partitioner does; ``global``, the cheapest reshards of the whole program by ``cost_model``, by default the
    machine at hand. enable_halo_exchange: neighbours exchange rows where ops look at them, instead of gathering.

    Raises ProgramError, ShardingError and MeshError for bad input, and CostModelError for a model of mode ``shardy``.
    """
    from eggshard.shardy import module_text

    check_shardy()
    if mode not in MODES:
        raise ProgramError(f"mode {mode!r} of partition is none of {', '.join(MODES)}")
    if mode == "shardy" and cost_model is not None:
        raise CostModelError("mode='shardy' decides by numbers of elements, without a cost model; give mode='global'")
    text = module_text(program)
    by_op = _partitioned(text, "shardy", enable_halo_exchange, None)
    if mode == "shardy":
        return by_op
    from eggshard.costmodel.detection import at_hand, named
    from eggshard.frontends import frontend_of

    model = named(cost_model) if isinstance(cost_model, str) else cost_model
    model = model or at_hand(frontend_of(program).devices(program))
    planned = _partitioned(text, "global", enable_halo_exchange, model)
    share = planned.seconds(model) / max(by_op.seconds(model), 1e-12)
    better = share <= 1 if planned.bytes.busiest <= by_op.bytes.busiest else share <= 1 - _SAVED
    return planned if better else replace(by_op, mode="global")


def _partitioned(text: str, mode: str, enable_halo_exchange: bool, model: CostModel | None) -> Partitioned:
    from eggshard.shardy.catalogue import read_steps
    from eggshard.shardy.module import COLLECTIVES, parsed
    from eggshard.shardy.passes import Step
    from eggshard.shardy.pipelines import partition_steps, propagation_steps

    *steps, _ = ("chlo-legalize-to-stablehlo", "inline-calls", *propagation_steps(mode=mode),
                 *partition_steps(enable_halo_exchange=enable_halo_exchange, mode=mode))
    with parsed(text) as module:
        for op in module.walk(*COLLECTIVES):
            raise ProgramError(
                f"the program has explicit collectives already ({op.name}): bring it to shards with "
                "eggshard.shardy.run and the passes that are left, or give the program before them")
        if not module.meshes and _GSPMD.search(text):
            raise ProgramError(
                "the program's shardings are GSPMD's (mhlo.sharding), which Shardy's passes do not read: lower it with "
                "Shardy enabled in JAX, or plan it with eggshard.optimize")
        for step in read_steps(steps):
            priced = model is not None and step.pass_.name == "insert-explicit-reshards"
            (Step(step.pass_, {**step.options, "cost-model": model}) if priced else step).run(module)
        return Partitioned(mode, module.text())
