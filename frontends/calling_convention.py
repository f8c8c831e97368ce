"""How a JAX function's arguments and results map to the inputs and outputs of the program it was lowered to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import NamedSharding

from eggshard.errors import LoweringError
from eggshard.program.program import Program
from eggshard.program.types import numpy_dtype


@dataclass(frozen=True)
class Leaf:
    """One array of a signature: its type as the caller sees it.

    ``key``: the name of the random-number implementation whose typed keys it holds ("": ordinary data).
    """

    shape: tuple[int, ...]
    dtype: Any
    weak_type: bool = False
    key: str = ""

    @classmethod
    def of(cls, aval: Any) -> Leaf:
        """The leaf of an abstract value."""
        key = aval.dtype._impl.name if jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key) else ""
        return cls(tuple(aval.shape), aval.dtype, bool(getattr(aval, "weak_type", False)), key)


@dataclass(frozen=True)
class CallingConvention:
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
    def of(cls, lowered: jax.stages.Lowered) -> CallingConvention:
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
    def positional(cls, program: Program) -> CallingConvention:
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
        paths = jax.tree_util.tree_flatten_with_path(jax.tree.unflatten(self.in_tree, range(len(self.arguments))))[0]
        path = paths[i][0]
        return f"{('args', 'kwargs')[path[0].idx]}{jax.tree_util.keystr(path[1:])}"


def _named_sharding(sharding: Any) -> NamedSharding | None:
    return sharding if isinstance(sharding, NamedSharding) else None
