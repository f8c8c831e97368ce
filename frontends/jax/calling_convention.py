"""Calling conventions: the map between a JAX function's arguments and results and its lowered program's ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from eggshard.errors import LoweringError
from eggshard.frontends.protocol import CallingConvention
from eggshard.program.program import Program
from eggshard.program.types import TensorType, numpy_dtype

#: JAX's name of the kind of memory that is the host's and that devices read.
HOST = "pinned_host"


@dataclass(frozen=True)
class Leaf:
    """One array of a signature: its type as the caller sees it.

    ``key``: the name of the random-number implementation whose typed keys it holds ("": ordinary data). ``memory``: the
    kind of memory that it lies in, by JAX's name ("": the device's own).
    """

    shape: tuple[int, ...]
    dtype: Any
    weak_type: bool = False
    key: str = ""
    memory: str = ""

    @classmethod
    def of(cls, aval: Any) -> Leaf:
        """The leaf of an abstract value."""
        key = aval.dtype._impl.name if jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key) else ""
        memory = HOST if getattr(getattr(aval, "memory_space", None), "name", "") == "Host" else ""
        return cls(tuple(aval.shape), aval.dtype, bool(getattr(aval, "weak_type", False)), key, memory)

    def seen(self, array: Any) -> Any:
        """An output of the program as the caller of the function sees it."""
        if self.key:
            return jax.random.wrap_key_data(array, impl=self.key)
        return np.zeros(self.shape, jax.dtypes.float0) if self.dtype == jax.dtypes.float0 else array

    def resized(self, type_: TensorType) -> Leaf:
        """The leaf of another global shape; the program's type of typed keys has a dimension more."""
        return replace(self, shape=type_.shape[: len(self.shape)])


@dataclass(frozen=True)
class JaxCallingConvention:
    """How the arguments and results of a function relate to the inputs and outputs of its program.

    ``in_tree`` is of (args, kwargs) and has the leaves ``arguments``, static arguments not among them. The program
    takes ``constants`` and then the arguments numbered ``kept``, ascending; JAX dropped the others as unused.
    ``donated`` says of each argument whether its buffer may be reused. ``devices``: what the function was lowered for,
    in order. The shardings are those stated for arguments and results (None where nothing was). ``callbacks`` are the
    Python functions that its custom calls number, ``effects`` JAX's names of what they do.
    """

    in_tree: Any
    out_tree: Any
    arguments: tuple[Leaf, ...]
    results: tuple[Leaf, ...]
    kept: tuple[int, ...]
    donated: tuple[bool, ...]
    constants: tuple[Any, ...] = ()
    devices: tuple[Any, ...] = ()
    argument_shardings: tuple[NamedSharding | None, ...] = ()
    result_shardings: tuple[NamedSharding | None, ...] = ()
    callbacks: tuple[Any, ...] = ()
    effects: frozenset[Any] = frozenset()
    name: str = "planned"

    @classmethod
    def of(cls, lowered: jax.stages.Lowered) -> JaxCallingConvention:
        """The convention of ``jax.jit(f).lower(...)``. LoweringError for a lowering of another kind."""
        lowering = lowered._lowering
        facts = getattr(lowering, "compile_args", {})
        if "kept_var_idx" not in facts or "global_out_avals" not in facts:
            raise LoweringError(f"{lowered} does not come from jax.jit; lower the function with jax.jit(f).lower(...)")
        if facts.get("ordered_effects") or facts.get("mut"):
            raise LoweringError(
                f"{lowering._name} has ordered effects or mutable arrays, which cannot be planned; use unordered "
                "effects (ordered=False), and keep mutable arrays outside the planned function"
            )
        infos = jax.tree.leaves(lowered.args_info)
        avals = jax.tree.leaves(lowered.in_avals)
        kept = tuple(sorted(facts["kept_var_idx"]))
        first = len(getattr(lowering, "const_args", ()))
        stated = dict(zip(kept, facts["in_shardings"][first:], strict=True))
        return cls(
            in_tree=lowered.in_tree,
            out_tree=lowered.out_tree,
            arguments=tuple(map(Leaf.of, avals)),
            results=tuple(map(Leaf.of, facts["global_out_avals"])),
            kept=kept,
            donated=tuple(bool(i.donated) for i in infos),
            constants=tuple(getattr(lowering, "const_args", ())),
            devices=tuple(getattr(lowering, "_device_list", None) or ()),
            argument_shardings=tuple(_named_sharding(stated.get(i)) for i in range(len(avals))),
            result_shardings=tuple(map(_named_sharding, facts["out_shardings"])),
            callbacks=tuple(facts.get("host_callbacks") or ()),
            effects=frozenset(facts.get("unordered_effects") or ()),
            name=str(lowering._name).removeprefix("jit(").removesuffix(")"),
        )

    @classmethod
    def positional(cls, program: Program) -> JaxCallingConvention:
        """The convention of a program from text: one positional argument per input, a tuple of the outputs."""
        inputs = tuple(Leaf(t.shape, numpy_dtype(t.dtype)) for t in program.input_types)
        outputs = tuple(Leaf(t.shape, numpy_dtype(t.dtype)) for t in program.output_types)
        return cls(
            in_tree=jax.tree.structure((tuple(range(len(inputs))), {})),
            out_tree=jax.tree.structure(tuple(range(len(outputs)))),
            arguments=inputs,
            results=outputs,
            kept=tuple(range(len(inputs))),
            donated=(False,) * len(inputs),
            name=program.name,
        )

    @classmethod
    def to_call(cls, program: Program, convention: CallingConvention | None) -> JaxCallingConvention:
        """The convention if it is one of JAX, else that of the program as from text."""
        return convention if isinstance(convention, cls) else cls.positional(program)

    @property
    def device_ids(self) -> tuple[int, ...]:
        return tuple(device.id for device in self.devices)

    def leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The arguments in the order of ``arguments``; LoweringError where their structure is another one."""
        leaves: list[Any]
        leaves, tree = jax.tree.flatten((args, kwargs))
        if tree != self.in_tree:
            raise LoweringError(
                f"{self.name} was planned for arguments of structure {_shown(self.in_tree)}, got {_shown(tree)}; call "
                "it with the same structure (static arguments left out), or plan again"
            )
        return leaves

    def inputs(self, leaves: Sequence[Any]) -> list[Any]:
        """The program's inputs for these arguments; LoweringError for one of another type than was planned for."""
        arrays = list(self.constants)
        for i in self.kept:
            leaf, array = self.arguments[i], leaves[i]
            array = array if isinstance(array, jax.Array) else jax.numpy.asarray(array)
            if array.shape != leaf.shape or array.dtype != leaf.dtype:
                raise LoweringError(
                    f"{self.argument_name(i)} of {self.name} is {array.dtype}{list(array.shape)}, it was "
                    f"planned for {leaf.dtype}{list(leaf.shape)}; pass that type, or plan again"
                )
            arrays.append(jax.random.key_data(array) if leaf.key else array)
        return arrays

    def seen(self, outputs: Sequence[Any]) -> list[Any]:
        """The results in the order of ``results``, for the program's outputs."""
        return [leaf.seen(array) for leaf, array in zip(self.results, outputs, strict=True)]

    def flattened(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """See `CallingConvention.flattened`."""
        return self.inputs(self.leaves(args, kwargs))

    def rebuilt(self, outputs: Sequence[Any]) -> Any:
        """See `CallingConvention.rebuilt`."""
        return jax.tree.unflatten(self.out_tree, self.seen(outputs))

    def resized(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> JaxCallingConvention:
        """See `CallingConvention.resized`."""
        first = len(self.constants)
        for i, (constant, type_) in enumerate(zip(self.constants, inputs[:first], strict=True)):
            if tuple(np.shape(constant)) != type_.shape:
                raise LoweringError(
                    f"constant {i} of {self.name} has the shape {list(np.shape(constant))} and would be {type_}; "
                    "give the program at these sizes, Plan.on(devices, program)"
                )
        arguments = list(self.arguments)
        for i, type_ in zip(self.kept, inputs[first:], strict=True):
            arguments[i] = arguments[i].resized(type_)
        return replace(
            self, arguments=tuple(arguments), devices=(),
            results=tuple(leaf.resized(type_) for leaf, type_ in zip(self.results, outputs, strict=True)),
            argument_shardings=(None,) * len(arguments), result_shardings=(None,) * len(self.results),
        )

    def places_of_donated(self) -> tuple[NamedSharding | None, ...]:
        """Per result its stated sharding, or that of the donated argument whose buffer JAX would give it, or None."""
        free: dict[tuple[Any, ...], list[NamedSharding | None]] = {}
        for leaf, donated, place in zip(self.arguments, self.donated, self.argument_shardings, strict=True):
            if donated:
                free.setdefault((leaf.shape, leaf.dtype), []).append(place)
        return tuple(
            stated or (buffers.pop(0) if (buffers := free.get((leaf.shape, leaf.dtype))) else None)
            for leaf, stated in zip(self.results, self.result_shardings, strict=True)
        )

    def argument_name(self, i: int) -> str:
        """Where argument i stands in the caller's arguments, e.g. ``args[0]['w']``."""
        return self.argument_names[i]

    @property
    def argument_names(self) -> list[str]:
        """Where each argument stands in the caller's arguments."""
        return [f"{('args', 'kwargs')[path[0].idx]}{jax.tree_util.keystr(path[1:])}"
                for path in _paths(self.in_tree, len(self.arguments))]

    @property
    def result_names(self) -> list[str]:
        """Where each result stands in what the function returns, e.g. ``result[0]['w']``."""
        return [f"result{jax.tree_util.keystr(path)}" for path in _paths(self.out_tree, len(self.results))]


def _named_sharding(sharding: Any) -> NamedSharding | None:
    return sharding if isinstance(sharding, NamedSharding) else None


def _paths(tree: Any, count: int) -> list[Any]:
    """The paths of a tree's leaves."""
    return [path for path, _ in jax.tree_util.tree_flatten_with_path(jax.tree.unflatten(tree, range(count)))[0]]


def _shown(tree: Any) -> str:
    """The structure of (args, kwargs), cut where it gets long."""
    text = str(tree).removeprefix("PyTreeDef(").removesuffix(")")
    return text if len(text) <= 300 else f"{text[:300]}... ({tree.num_leaves} leaves)"
