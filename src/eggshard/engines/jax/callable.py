"""A plan as a function on global JAX arrays, with the signature of the function it was planned from."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from eggshard.emit.jax_primitive import DeviceModule, TransformationError, call_module
from eggshard.emit.stablehlo import at_grid_positions, module_text, unsharded_text
from eggshard.engines.jax.agreement import agree, processes_of
from eggshard.engines.jax.meshes import (
    abstract_mesh,
    committed_sharding,
    default_devices,
    device_mesh,
    lying_somewhere,
    mesh_in_effect,
    usual_mesh,
)
from eggshard.engines.jax.specs import spec_of, trimmed
from eggshard.errors import FallbackWarning, LoweringError
from eggshard.frontends.jax.calling_convention import JaxCallingConvention
from eggshard.frontends.protocol import CallingConvention
from eggshard.ops.calls.opaque import partitions_itself
from eggshard.ops.module_text import program_text
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement
from eggshard.program.program import Program
from eggshard.program.sharding import whole_mesh
from eggshard.spmd.manual import contains_manual

if TYPE_CHECKING:
    from eggshard.plan.record import PlanRecord

__all__ = ["PlannedFunction", "TransformationError", "run_on_devices", "run_unsharded", "to_jax"]


class Dispatch(NamedTuple):
    """A jitted function for arguments that lie in some way.

    moves: where to put those that lie elsewhere. placed: where to put results that XLA leaves elsewhere. devices: those
    that take part, if they are of several processes; ``spread`` names the arguments that are then not whole on each.
    """

    function: Any
    moves: tuple[tuple[int, Any], ...] = ()
    placed: tuple[tuple[int, Any], ...] = ()
    devices: tuple[Any, ...] = ()
    spread: tuple[tuple[int, Any], ...] = ()


class PlannedFunction:
    """A plan, callable on global arrays. Calling it costs a `jax.jit` dispatch after the first time.

    Arguments are JAX arrays on a mesh of the plan's shape (they are moved where their sharding is not the planned
    one), arrays that are committed to no device, NumPy arrays, or tracers of a surrounding `jax.jit`. The devices are
    those of the arguments; without any, those of the mesh in effect, of the original lowering, or the first ones.

    Where they belong to several processes, all of these make the same call. Before the first one they compare their
    plans (EngineError where they differ: devices would wait for each other forever). Arguments are global arrays, or
    uncommitted ones that hold the same everywhere; NumPy arrays only where every device holds all of them.
    """

    def __init__(self, plan: PlanRecord, convention: CallingConvention | None = None):
        self.plan = plan
        self.convention = JaxCallingConvention.to_call(plan.program, convention)
        self.module = _device_module(plan, self.convention)
        self._dispatch: dict[tuple[Any, ...], Dispatch] = {}
        self._agreed: set[tuple[Any, ...]] = set()
        self.__name__ = self.__qualname__ = self.convention.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The results of the planned function. LoweringError for arguments that it was not planned for."""
        leaves = self.convention.leaves(args, kwargs)
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return jax.tree.unflatten(self.convention.out_tree, self.apply(*leaves))
        if jax.config.jax_disable_jit:
            # A plan is a compiled program; there is nothing of it to run op by op.
            with jax.disable_jit(False):
                return self(*args, **kwargs)
        dispatch = self._dispatched(leaves)
        if dispatch.devices:
            self._for_all_processes(dispatch, leaves)
        for i, sharding in dispatch.moves:
            leaves[i] = jax.device_put(leaves[i], sharding)
        try:
            results = dispatch.function(*leaves)
        except TypeError:
            for i, leaf in enumerate(leaves):
                if isinstance(leaf, (str, bytes)) or not hasattr(leaf, "dtype") and not np.isscalar(leaf):
                    what = f"{self.convention.argument_name(i)} of {self.__name__} is {type(leaf).__name__}"
                    raise LoweringError(f"{what}; pass an array") from None
            raise
        for i, sharding in dispatch.placed:
            results[i] = jax.device_put(results[i], sharding)
        return jax.tree.unflatten(self.convention.out_tree, results)

    def lower(self, *args: Any, **kwargs: Any) -> jax.stages.Lowered:
        """What `jax.jit` lowers for these arguments (flattened): to compile ahead, or to read the compiled text."""
        leaves = self.convention.leaves(args, kwargs)
        return self._dispatched(leaves).function.lower(*leaves)

    def _for_all_processes(self, dispatch: Dispatch, leaves: Sequence[Any]) -> None:
        """What must hold before devices of several processes run: one plan, and arguments of which nothing is guessed.

        EngineError where processes hold different plans, LoweringError for NumPy arrays that are not whole everywhere.
        """
        for i, sharding in dispatch.spread:
            if not isinstance(leaves[i], jax.Array):
                what = f"{self.convention.argument_name(i)} of {self.__name__} is {type(leaves[i]).__name__}"
                raise LoweringError(
                    f"{what}, and is to lie as {sharding.spec} on devices of several processes, which does not say "
                    "whether each process gives all of it or its own part: "
                    "jax.make_array_from_callback(shape, sharding, lambda i: array[i]) makes an array of the former, "
                    "jax.make_array_from_process_local_data(sharding, array) of the latter"
                )
        if dispatch.devices not in self._agreed:
            agree(self.plan, processes_of(dispatch.devices), devices=dispatch.devices)
            self._agreed.add(dispatch.devices)

    def _dispatched(self, leaves: list[Any]) -> Dispatch:
        # Where the arguments lie decides everything; NumPy arrays and uncommitted ones lie nowhere.
        key = (*map(committed_sharding, leaves), mesh_in_effect())
        found = self._dispatch.get(key)
        if found is None:
            found = self._dispatch[key] = self._prepare(key[:-1], key[-1])
        return found

    def _prepare(self, shardings: Sequence[Any], context: Any) -> Dispatch:
        """The jitted function for arguments that lie so, and where to move those that lie elsewhere."""
        donated = tuple(i for i, d in enumerate(self.convention.donated) if d)
        function = self.flat_function()
        if self.module.devices == 1:
            return Dispatch(jax.jit(function, donate_argnums=donated))
        mesh = self.jax_mesh(shardings, context)
        inputs = self.input_shardings(mesh)
        moves = tuple(
            (i, target)
            for i, (given, target) in enumerate(zip(shardings, inputs, strict=True))
            if given is not None
            and target is not None
            and not given.is_equivalent_to(target, len(self.convention.arguments[i].shape))
        )
        outputs = self.output_shardings(mesh)
        placed = self.without_elements(outputs)
        for i, sharding in placed:
            outputs[i] = sharding.update(spec=PartitionSpec())
        jitted = jax.jit(function, in_shardings=tuple(inputs), out_shardings=outputs, donate_argnums=donated)
        devices = tuple(mesh.devices.flat)
        if len(processes_of(devices)) == 1:
            return Dispatch(jitted, moves, placed)
        spread = ((i, s) for i, s in enumerate(inputs) if s is not None and not s.is_fully_replicated)
        return Dispatch(jitted, moves, placed, devices, tuple(spread))

    def flat_function(self) -> Callable[..., list[Any]]:
        """`apply` as a function of the planned one's name."""

        def function(*leaves: Any) -> Any:
            return self.apply(*leaves)

        function.__name__ = function.__qualname__ = self.convention.name
        return function

    def input_shardings(self, mesh: jax.sharding.Mesh | AbstractMesh) -> list[NamedSharding | None]:
        """Where the plan wants each argument (None for those that it does not use)."""
        convention = self.convention
        inputs: list[Any] = [None] * len(convention.arguments)
        first = len(convention.constants)
        for i, placement in zip(convention.kept, self.plan.input_placements[first:], strict=True):
            inputs[i] = self._sharding(mesh, placement, len(convention.arguments[i].shape))
        return inputs

    def output_shardings(self, mesh: jax.sharding.Mesh | AbstractMesh) -> list[NamedSharding | None]:
        """Where the plan puts each result, in which memory (None for results without data)."""
        found: list[NamedSharding | None] = []
        for leaf, placement in zip(self.convention.results, self.plan.output_placements, strict=True):
            place = None if leaf.dtype == jax.dtypes.float0 else self._sharding(mesh, placement, len(leaf.shape))
            found.append(place.with_memory_kind(leaf.memory) if place and leaf.memory else place)
        return found

    def without_elements(self, outputs: Sequence[NamedSharding | None]) -> tuple[tuple[int, NamedSharding], ...]:
        """Where sharded results without elements lie: XLA leaves them whole, whatever it is told."""
        return tuple((i, s) for i, (leaf, s) in enumerate(zip(self.convention.results, outputs, strict=True))
                     if 0 in leaf.shape and s is not None and not s.is_fully_replicated)

    def apply(self, *leaves: Any) -> list[Any]:
        """The flat results for flat arguments, computed in place: for use under a trace."""
        return self.convention.seen(call_module(self.module, self.convention.inputs(leaves)))

    def jax_mesh(self, shardings: Sequence[Any], context: Any) -> jax.sharding.Mesh:
        """The mesh that the arguments lie on, else the one in effect, else one over the lowering's devices."""
        whole = whole_mesh(self.plan.mesh)
        mesh, devices = None, None
        for i, sharding in enumerate(shardings):
            if sharding is None:
                continue
            where = f"{self.convention.argument_name(i)} of {self.convention.name}"
            order = tuple(sharding._device_assignment)
            if isinstance(sharding, NamedSharding) and not sharding.mesh.empty:
                self._check_mesh(sharding.mesh, where)
                if mesh is None and dict(sharding.mesh.shape) == whole.axes:
                    mesh = sharding.mesh
            elif len(order) != whole.size:
                remedy = "put it on such a mesh with jax.device_put" if jax.process_count() == 1 else (
                    "make it a global array with jax.make_array_from_process_local_data or make_array_from_callback"
                )
                raise LoweringError(
                    f"{where} lies on {len(order)} devices, the plan is for {whole.size}, mesh {whole.axes}; {remedy}"
                )
            if devices is not None and order != devices:
                raise LoweringError(f"{where} lies on other devices than the arguments before it, or in another order")
            devices = order
        if devices is None and context is not None:
            self._check_mesh(context, "the mesh in effect")
            devices = tuple(context.devices.flat)
            mesh = context if dict(context.shape) == whole.axes else None
        if mesh is not None:
            return mesh
        return usual_mesh(whole, self.convention) if devices is None else device_mesh(devices, whole)

    def _check_mesh(self, mesh: Any, where: str) -> None:
        given, whole = whole_mesh(Mesh.of(mesh)), whole_mesh(self.plan.mesh)
        if tuple(given.axes.values()) != tuple(whole.axes.values()):
            raise LoweringError(
                f"{where} lies on a mesh of another shape: {given.axes}, the plan is for {whole.axes}; use a mesh of "
                "the planned shape, or plan again"
            )

    def _sharding(self, mesh: jax.sharding.Mesh | AbstractMesh, placement: Placement, rank: int) -> NamedSharding:
        """The JAX sharding of a placement's first ``rank`` dimensions (typed keys hide the others)."""
        spec = spec_of(placement, self.plan.mesh, tuple(mesh.axis_names))
        if spec is None:
            # Sub-axes have no name on the caller's mesh: the same devices, as a finer grid.
            abstract = isinstance(mesh, AbstractMesh)
            mesh = abstract_mesh(self.plan.mesh) if abstract else device_mesh(tuple(mesh.devices.flat), self.plan.mesh)
            spec = PartitionSpec(*[d.axes or None for d in placement.dims])
        return NamedSharding(mesh, trimmed(tuple(spec)[:rank]))


def to_jax(plan: PlanRecord) -> Callable[..., Any]:
    """A plan as a function on global JAX arrays, with the signature of the function it was planned from.

    A plan of a program from text takes its inputs one by one and returns a tuple. The function can be called inside
    `jax.jit`; `TransformationError` under `jax.grad` and `jax.vmap`. LoweringError for a plan that XLA cannot run.
    """
    planned, convention = PlannedFunction(plan, plan.calling_convention), plan.calling_convention
    if convention is None or convention is planned.convention:
        return planned

    def function(*args: Any, **kwargs: Any) -> Any:
        return convention.rebuilt(planned(*convention.flattened(args, kwargs)))

    function.__name__ = function.__qualname__ = convention.name
    return function


def run_on_devices(plan: PlanRecord, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Global NumPy arrays in and out, on the first devices that JAX has; LoweringError if they are too few.

    In a program of several processes all of them call this, with the same arrays; see `default_devices`.
    """
    planned = PlannedFunction(plan)
    with jax.enable_x64(True):
        if jax.process_count() == 1 or plan.mesh.size == 1:
            return [np.asarray(a) for a in planned(*arrays)]
        places = planned.input_shardings(planned.jax_mesh((), None))
        given = [_everywhere_alike(a, s) for a, s in zip(arrays, places, strict=True)]
        results = planned(*given)
        return [np.asarray(a if a.is_fully_addressable else process_allgather(a, tiled=True)) for a in results]


def _everywhere_alike(array: np.ndarray, sharding: NamedSharding | None) -> jax.Array:
    """The global array of which every process holds all."""
    return jax.make_array_from_callback(array.shape, sharding, lambda part: array[part])


def run_unsharded(program: Program, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The program on one device, as its author wrote it; on its mesh, as XLA partitions it, where parts are manual.

    LoweringError if the devices are too few.
    """
    types = program.input_types, program.output_types
    if not contains_manual(program.region):
        text = unsharded_text(program)
        module = DeviceModule(program.name, lambda _: text, 1, *types, (), (None,) * len(types[1]))
        with jax.enable_x64(True):
            return [np.asarray(a) for a in call_module(module, [jax.numpy.asarray(a) for a in arrays])]
    whole = whole_mesh(program.mesh)
    if len(jax.devices()) < whole.size:
        raise LoweringError(f"{program.name} runs on {whole.size} devices, mesh {whole.axes}; too few are here")
    text = program_text(program)
    module = DeviceModule(program.name, lambda _: text, whole.size, *types, (), (None,) * len(types[1]))
    everywhere = NamedSharding(device_mesh(default_devices(whole.size), whole), PartitionSpec())
    with jax.enable_x64(True):
        function = jax.jit(lambda *given: call_module(module, given), in_shardings=everywhere, out_shardings=everywhere)
        return [np.asarray(a) for a in function(*arrays)]


def _device_module(plan: PlanRecord, convention: JaxCallingConvention) -> DeviceModule:
    program, mesh = plan.program, plan.mesh
    inputs = len(convention.constants) + len(convention.kept)
    if inputs != len(program.input_types) or len(convention.results) != len(program.output_types):
        raise LoweringError(
            f"the calling convention of {convention.name} has {inputs} inputs and {len(convention.results)} outputs, "
            f"its program has {len(program.input_types)} and {len(program.output_types)}"
        )

    by_xla = partitions_itself(program.region)
    if by_xla:
        warnings.warn(
            f"{convention.name} calls a function that partitions itself (jax.custom_partitioning), which XLA takes in "
            "no plan: it runs as XLA partitions it", FallbackWarning, stacklevel=2)

    @cache
    def text(platform: str) -> str:
        if by_xla:
            return program_text(program)
        return module_text(
            at_grid_positions(plan.device_program),
            program.input_types,
            plan.input_placements,
            program.output_types,
            plan.output_placements,
            name=convention.name,
            platform=platform,
            processes=jax.process_count(),
        )

    axes = tuple(whole_mesh(mesh).axes.items())
    names = tuple(name for name, _ in axes)
    return DeviceModule(
        name=convention.name,
        text=text,
        devices=mesh.size,
        inputs=program.input_types,
        outputs=program.output_types,
        axes=axes,
        specs=tuple(spec_of(p, mesh, names) for p in plan.output_placements),
        weak=tuple(leaf.weak_type for leaf in convention.results),
        whole=lambda: program_text(program),
        callbacks=convention.callbacks,
        effects=convention.effects,
        placed=lambda arrays: lying_somewhere(arrays, whole_mesh(mesh), convention),
    )
