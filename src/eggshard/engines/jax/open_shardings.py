"""Shardings of a JAX function's arguments and results that are to be chosen (`AUTO`), and what was chosen."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from eggshard.collector import collector_paused
from eggshard.costmodel import at_hand
from eggshard.engines.jax.agreement import made_once
from eggshard.engines.jax.arguments import described
from eggshard.engines.jax.meshes import abstract_mesh, made_mesh, mesh_in_effect
from eggshard.engines.jax.specs import partition_spec
from eggshard.errors import MeshError, ShardingError
from eggshard.frontends import load
from eggshard.frontends.jax.calling_convention import JaxCallingConvention, Leaf
from eggshard.plan.json_values import decode, encode
from eggshard.planner.choosing.choice import Choice, Chooser
from eggshard.planner.choosing.meshes import MeshChoice, Tried, choose_mesh
from eggshard.planner.choosing.narrowing import End, Narrowing, Tactic
from eggshard.planner.request import requested
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement
from eggshard.program.program import Program
from eggshard.program.sharding import AUTO, Sharding


@dataclass(frozen=True)
class Chosen:
    """Where a function's arguments and results are to lie: one sharding per leaf, in the order of its convention.

    carried: per result that is fed back the argument that it becomes. narrowing: what tactics did. mesh: on which;
    one without devices where a number of them was given. meshes: those that were tried, where the mesh was chosen, too.
    """

    arguments: tuple[NamedSharding, ...]
    results: tuple[NamedSharding, ...]
    carried: Mapping[int, int]
    choice: Choice
    narrowing: Narrowing
    mesh: jax.sharding.Mesh | AbstractMesh
    meshes: tuple[Tried, ...] = ()

    def arranged(self, leaves: Sequence[Any], to_run: bool = False) -> list[Any]:
        """The arguments, types of arrays or arrays, where they are to lie.

        On a mesh without devices arrays become types; MeshError where they are ``to_run``.
        """
        abstract = isinstance(self.mesh, AbstractMesh)
        if abstract and to_run:
            raise MeshError(f"{self.mesh} has no devices to run on: give devices=jax.devices(), or a mesh of them")
        place = described if abstract else _placed
        return [place(leaf, sharding) for leaf, sharding in zip(leaves, self.arguments, strict=True)]


class OpenShardings:
    """The ``in_shardings`` and ``out_shardings`` of a function, some of which are to be chosen.

    carry: {position of an argument: position of the result that becomes it in the next call}. tactics: what narrows the
    choice, in order. mesh: `AUTO` where it is to be chosen, too. devices: of which, a list or a number (plans only); by
    default all of JAX's.
    """

    def __init__(self, in_shardings: Any, out_shardings: Any, mesh: Any, carry: Mapping[int, int] | None,
                 tactics: Sequence[Tactic] = (), devices: Any = None):
        self.given = in_shardings, out_shardings
        self.mesh, self.carry, self.tactics, self._devices = mesh, carry, tactics, devices
        if devices is not None and mesh is not AUTO:
            raise MeshError("devices says of what a mesh is chosen: give mesh=eggshard.AUTO, too")
        if tactics and mesh is AUTO:
            raise MeshError("tactics name the axes of a mesh, and it is to be chosen: give mesh=jax.make_mesh(...)")

    @staticmethod
    def any_open(shardings: Any) -> bool:
        """Whether something in a tree of shardings is to be chosen."""
        return any(map(_is_open, jax.tree.leaves(shardings, is_leaf=_is_leaf)))

    def stated(self) -> dict[str, Any]:
        """What is stated, as `jax.jit` takes it."""
        mesh = self.mesh

        def plain(spec: Any) -> Any:
            if spec is None or _is_open(spec):
                return None
            if mesh is AUTO:
                return _without_mesh(spec)
            return NamedSharding(self.devices, spec) if mesh is not None and isinstance(spec, PartitionSpec) else spec

        trees = (jax.tree.map(plain, tree, is_leaf=_is_leaf) for tree in self.given)
        named = zip(("in_shardings", "out_shardings"), trees, strict=True)
        return {name: tree for name, tree in named if jax.tree.leaves(tree)}

    @property
    def devices(self) -> jax.sharding.Mesh | AbstractMesh | tuple[Any, ...] | int:
        """The mesh: the one that was given, that of a stated sharding, or the one in effect. MeshError without one.

        Where it is to be chosen, the devices, or their number.
        """
        if self.mesh is AUTO:
            given = self._devices
            return given if isinstance(given, int) else tuple(jax.devices() if given is None else given)
        leaves = jax.tree.leaves(self.given, is_leaf=_is_leaf)
        stated = (s.mesh for s in leaves if isinstance(s, NamedSharding))
        mesh = self.mesh if self.mesh is not None else next(stated, None) or mesh_in_effect()
        if not isinstance(mesh, (jax.sharding.Mesh, AbstractMesh)):
            raise MeshError(
                "shardings are to be chosen, and nothing says on which mesh: give mesh=jax.make_mesh(...) or "
                "mesh=eggshard.AUTO, or call within jax.set_mesh(...)")
        return mesh

    def choose(self, lowered: jax.stages.Lowered, options: Mapping[str, Any]) -> Chosen:
        """Choose for a function that was lowered with what is stated; options as of `optimize`."""
        convention = JaxCallingConvention.of(lowered)
        carried = _carried(convention, self.carry)
        loaded, given = load(lowered), self.devices
        first, kept = len(convention.constants), {i: n for n, i in enumerate(convention.kept)}
        here = tuple(given.devices.flat) if isinstance(given, jax.sharding.Mesh) else (
            given if isinstance(given, tuple) else ())
        model = options.get("cost_model") or at_hand(list(here))
        asked = {k: options[k] for k in ("rewrites", "limits", "effort", "exact") if k in options}
        back = {o: first + kept[i] for o, i in carried.items() if i in kept}
        limit, text = options.get("memory_limit"), f"{carried} {lowered.as_text()}"
        on_mesh: MeshChoice | None = None

        def on(mesh: Mesh) -> Program:
            return self._program(loaded, convention, mesh)

        def tried(number: int) -> MeshChoice:
            with collector_paused():
                return choose_mesh(requested(loaded, model, **asked), on, number, back, limit)

        def made(chooser: Chooser) -> Choice:
            with collector_paused():
                return chooser.within(limit)

        if isinstance(given, (int, tuple)):
            number = given if isinstance(given, int) else len(given)
            on_mesh = made_once(here, "mesh", text, partial(tried, number), _mesh_written, _mesh_read)
            best = on_mesh.meshes[0].mesh
            devices = abstract_mesh(best) if isinstance(given, int) else made_mesh(given, best)
        else:
            devices = given
        program = on(Mesh.of(devices))
        request, ends = requested(program, model, **asked), _ends(convention, program, carried)
        tactics: Sequence[Tactic] | None = self.tactics
        asks = f"{program.input_shardings} {program.output_shardings} {text}"
        while tactics is not None:
            narrowing = Narrowing(tactics, *ends)
            chooser = Chooser(request, back, narrowing)
            choice = on_mesh.choice if on_mesh else made_once(
                here, "choice", asks, partial(made, chooser), _written, _read)
            tactics = narrowing.settled(choice.inputs, choice.outputs, program.mesh)
        results = tuple([_sharding(p, leaf, program.mesh, devices)
                         for p, leaf in zip(choice.outputs, convention.results, strict=True)])
        becomes = {i: o for o, i in carried.items()}
        arguments = []
        for i, leaf in enumerate(convention.arguments):
            if i in kept:
                arguments.append(_sharding(choice.inputs[first + kept[i]], leaf, program.mesh, devices))
            else:  # a function that does not use it may still give it back
                arguments.append(results[becomes[i]] if i in becomes else NamedSharding(devices, PartitionSpec()))
        return Chosen(tuple(arguments), results, carried, choice, narrowing, devices,
                      on_mesh.meshes if on_mesh else ())

    def _program(self, program: Program, convention: JaxCallingConvention, mesh: Mesh) -> Program:
        """The program on the mesh, open where shardings are to be chosen."""
        if program.mesh.size > 1 and program.mesh.axes != mesh.axes:
            raise MeshError(f"the function states shardings on a mesh {program.mesh.axes}, and the mesh is {mesh.axes}")
        mesh = program.mesh if program.mesh.size > 1 else mesh
        ins, outs = self.given
        args_tree = convention.in_tree.children()[0]
        arguments = [*leaves_of(ins, args_tree, "in_shardings"),
                     *[AUTO if ins is AUTO else None] * (len(convention.arguments) - args_tree.num_leaves)]
        results = leaves_of(AUTO if outs is None else outs, convention.out_tree, "out_shardings")
        first = len(convention.constants)
        inputs = list(program.input_shardings)
        for n, i in enumerate(convention.kept):
            inputs[first + n] = _open(arguments[i], convention.arguments[i], inputs[first + n], mesh)
        outputs = [_open(spec, leaf, stated, mesh) for spec, leaf, stated in zip(
            results, convention.results, program.output_shardings, strict=True)]
        return replace(program, mesh=mesh, input_shardings=tuple(inputs), output_shardings=tuple(outputs))


def _written(choice: Choice) -> str:
    """A choice as a text, without its clock."""
    return json.dumps(encode((choice.inputs, choice.outputs, choice.cost, choice.bound, choice.left_out)))


def _read(text: str) -> Choice:
    inputs, outputs, cost, bound, left_out = decode(json.loads(text))
    return Choice(inputs, outputs, cost=cost, bound=bound, left_out=left_out)


def _mesh_written(found: MeshChoice) -> str:
    return json.dumps([encode([tuple(row) for row in found.meshes]), _written(found.choice)])


def _mesh_read(text: str) -> MeshChoice:
    rows, choice = json.loads(text)
    return MeshChoice(tuple(Tried(*row) for row in decode(rows)), _read(choice))


def _ends(
    convention: JaxCallingConvention, program: Program, carried: Mapping[int, int]
) -> tuple[list[End | None], list[End | None]]:
    """The inputs and outputs of the program that tactics may speak of, but for random-number keys, which stay whole."""
    names, back = convention.argument_names, {*carried.values()}
    types = program.input_types[len(convention.constants):]
    inputs = [None if convention.arguments[i].key else End(names[i], type_, i in back)
              for i, type_ in zip(convention.kept, types, strict=True)]
    rows = zip(convention.result_names, convention.results, program.output_types, strict=True)
    outputs = [None if leaf.key or o in carried else End(name, type_) for o, (name, leaf, type_) in enumerate(rows)]
    return [*[None] * len(convention.constants), *inputs], outputs


def _is_leaf(spec: Any) -> bool:
    return spec is None or _is_spec(spec)


def _is_spec(spec: Any) -> bool:
    return isinstance(spec, PartitionSpec)


def _is_open(spec: Any) -> bool:
    entries = spec if isinstance(spec, PartitionSpec) else ()
    return spec is AUTO or any(e is AUTO or e is PartitionSpec.UNCONSTRAINED for e in entries)


def leaves_of(prefix: Any, tree: Any, name: str) -> list[Any]:
    """Per leaf of a tree what a prefix of it says; ShardingError for a tree of another structure."""
    whole = jax.tree.unflatten(tree, range(tree.num_leaves))
    # None is a spec in the prefix, but in the tree a place without leaves.
    unsaid = object()
    prefix = jax.tree.map(lambda spec: unsaid if spec is None else spec, prefix, is_leaf=_is_leaf)
    try:
        specs = jax.tree.leaves(jax.tree.broadcast(prefix, whole, is_leaf=_is_spec), is_leaf=_is_spec)
    except ValueError as error:
        raise ShardingError(f"{name} is no prefix of what it is for: {error}") from None
    return [None if spec is unsaid else spec for spec in specs]


def _open(spec: Any, leaf: Leaf, stated: Sharding | None, mesh: Mesh) -> Sharding | None:
    """The sharding of a leaf in the program: with open dimensions where these are to be chosen."""
    return stated if not _is_open(spec) or leaf.key else Sharding.of(spec, len(leaf.shape), mesh)


def _without_mesh(spec: Any) -> None:
    """What is stated where the mesh is to be chosen; ShardingError for all but replication."""
    if isinstance(spec, PartitionSpec) and not any(spec):
        return
    raise ShardingError(
        f"{spec} names axes of a mesh, which is to be chosen: give eggshard.AUTO there, or a mesh that has these axes")


def _sharding(
    placement: Placement, leaf: Leaf, mesh: Mesh, devices: jax.sharding.Mesh | AbstractMesh
) -> NamedSharding:
    spec = partition_spec(placement, mesh, tuple(devices.axis_names), len(leaf.shape))
    return NamedSharding(devices, PartitionSpec() if spec is None else spec, memory_kind=leaf.memory or None)


def _placed(leaf: Any, sharding: NamedSharding) -> Any:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf.update(sharding=sharding)
    return leaf if isinstance(leaf, jax.Array) and leaf.sharding == sharding else jax.device_put(leaf, sharding)


def _carried(convention: JaxCallingConvention, carry: Mapping[int, int] | None) -> dict[int, int]:
    """Per leaf of the results that is fed back the leaf of the arguments that it becomes.

    Unless told, these are results that take a donated argument's buffer, and those that are trees of the structure and
    types of an argument, which has several leaves: parameters, the state of an optimizer, caches.
    """
    arguments = _numbered(convention.in_tree.children()[0])
    results = _numbered(convention.out_tree)
    if carry is not None:
        return _told(carry, arguments, results, convention)
    found: dict[int, int] = {}
    taken: set[int] = set()
    types = [(leaf.shape, leaf.dtype) for leaf in convention.arguments]
    made = [(leaf.shape, leaf.dtype) for leaf in convention.results]
    for out_tree, outs in results:
        for tree, ins in arguments:
            if tree == out_tree and len(ins) > 1 and not taken & set(ins) and (
                    [types[i] for i in ins] == [made[o] for o in outs]):
                found.update(zip(outs, ins, strict=True))
                taken.update(ins)
                break
    for i, donated in enumerate(convention.donated):
        same = (o for o, type_ in enumerate(made) if type_ == types[i] and o not in found)
        if donated and i not in taken and (o := next(same, None)) is not None:
            found[o] = i
    return found


def _told(
    carry: Mapping[int, int], arguments: Sequence[tuple[Any, list[int]]], results: Sequence[tuple[Any, list[int]]],
    convention: JaxCallingConvention,
) -> dict[int, int]:
    found: dict[int, int] = {}
    for position, result in carry.items():
        if not (0 <= position < len(arguments) and 0 <= result < len(results)):
            raise ShardingError(f"carry={carry} of {len(arguments)} arguments and {len(results)} results")
        (tree, ins), (out_tree, outs) = arguments[position], results[result]
        types, made = [convention.arguments[i] for i in ins], [convention.results[o] for o in outs]
        if tree != out_tree or [(t.shape, t.dtype) for t in types] != [(t.shape, t.dtype) for t in made]:
            raise ShardingError(
                f"carry={carry}: result {result} of {convention.name} has not the structure and types of argument "
                f"{position}")
        found.update(zip(outs, ins, strict=True))
    return found


def _numbered(tree: Any) -> list[tuple[Any, list[int]]]:
    """The trees right below the root, each with the numbers of its leaves; the whole where its root is no tuple."""
    children = tree.children() if tree.node_data() is not None and tree.node_data()[0] in (tuple, list) else [tree]
    found, first = [], 0
    for child in children:
        found.append((child, list(range(first, first + child.num_leaves))))
        first += child.num_leaves
    return found
