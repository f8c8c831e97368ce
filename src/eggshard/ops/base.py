"""The base of op definitions: one definition per op answers every question that other modules ask of it.

An op family's file defines subclasses (or instances) of `OpDef` and registers them. The questions:

- `infer`: result types from operand types (the shape rule); `stated`: what only the results' types tell;
- `factors`: how sharding a dimension of one tensor shards the others (Shardy's factor table);
- `evaluate`: the meaning, in NumPy, on whole tensors or on shards alike;
- `localize`: the attributes of the same op on shard-local shapes;
- `reaches`, `window_form`: for ops that look at neighbours, what a window of the result needs, and the op on it;
- `summed_reaches`: what a shard of an operand needs of the others, where the op sums over a dimension of it;
- `window_allowed`: which windows of the result they can be computed on;
- `on_shards`: the op written out, where its shards need to know their place in the tensor;
- `attributes`: the StableHLO spelling, read and printed through `eggshard.program.codec`;
- `emit`: the op's MLIR lines, where the generic form of one op with its attributes is not enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Flag, auto
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from eggshard.errors import LoweringError, ProgramError
from eggshard.ops.windowing import WindowForm
from eggshard.program.attributes import Attributes
from eggshard.program.codec import Codec, encode_attributes
from eggshard.program.types import TensorType

if TYPE_CHECKING:
    from eggshard.ops.shard_program import ShardProgram
    from eggshard.ops.windowing import Reaches, Windowed
    from eggshard.program.placement import Dim
    from eggshard.program.program import Region

Types = tuple[TensorType, ...]
Arrays = Sequence[np.ndarray]
Results = tuple[np.ndarray, ...]
Regions = tuple["Region", ...]
#: Named values of a printed program: (name with its ``%``, type).
Values = Sequence[tuple[str, TensorType]]

#: MLIR lines, and the names of the results of the op that they compute.
Printed = tuple[list[str], list[str]]

PASS, REDUCE, REPLICATE, PERMUTE = "pass", "reduce", "replicate", "permute"


@dataclass(frozen=True, slots=True)
class Factor:
    """One independent index of an op (Shardy's factor).

    kind: ``pass`` (shards of the operands give shards of the results, no communication), ``reduce`` (sharding it
    leaves the results unreduced, to be combined by ``monoid``), ``replicate`` (must not be sharded), ``permute``
    (sharding it needs neighbours' data: not shardable without windows).
    ``positional``: what a device computes depends on where its shard begins along this factor, so `OpDef.on_shards`
    writes the op out where it is sharded. Such a factor makes up a dimension of each of its tensors alone.
    ``accumulators``: operands that enter the results once, however a ``reduce`` factor is sharded (what a scatter
    adds to): they are unreduced over the factor's axes as the results are.
    """

    size: int
    kind: str = PASS
    monoid: str = ""
    positional: bool = False
    accumulators: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FactorRule:
    """Which factors make up each dimension of each operand and result, major to minor.

    ``operands[i][d]`` is the tuple of factor indices of dimension d of operand i (empty: a dimension of size 1 that
    belongs to no factor and is never sharded); the product of the factor sizes is the dimension's size.
    ``linear``: ``(monoid, operand indices)`` pairs: when exactly those operands are unreduced over an axis (and every
    other operand is replicated over it), the op applied to the partial values gives the partial values of its results.
    """

    factors: tuple[Factor, ...]
    operands: tuple[tuple[tuple[int, ...], ...], ...]
    results: tuple[tuple[tuple[int, ...], ...], ...]
    linear: tuple[tuple[str, tuple[int, ...]], ...] = ()


class Traits(Flag):
    """What passes want to know of an elementwise op besides its meaning.

    ``KEEPS_ZERO``: of zeros alone it makes +0. ``IDEMPOTENT``: of equal operands it makes what these are (of a select
    its two values). ``DIVIDES``: an instruction, but a slow one: a quotient or a root. ``FUNCTION``: many instructions,
    like a hyperbolic tangent. ``VECTORISED``: libraries of vector kernels for CPUs have it.
    """

    NONE = 0
    KEEPS_ZERO = auto()
    IDEMPOTENT = auto()
    DIVIDES = auto()
    FUNCTION = auto()
    VECTORISED = auto()
    DEAR = DIVIDES | FUNCTION


class Printer(Protocol):
    """What `OpDef.emit` writes with. Names of values begin with their ``%``."""

    #: A new name.
    fresh: Callable[[], str]

    def op(
        self, name: str, attrs: Attributes, operands: Values, results: Sequence[TensorType],
        regions: Sequence[Region] = (),
    ) -> Printed:
        """An op of the registry; ProgramError for an unknown one, or a missing attribute."""
        ...

    def operation(
        self, mlir_name: str, attributes: Sequence[tuple[str, str]], operands: Values, results: Sequence[TensorType],
        regions: Sequence[list[str]],
    ) -> Printed:
        """One op in the generic form, from (name, text) pairs and the lines of its regions."""
        ...

    def region(
        self, region: Region, inputs: Sequence[str] | None = None, terminator: str = "stablehlo.return"
    ) -> list[str]:
        """The lines of a region's one block, with its terminator, without the braces.

        ``inputs`` name values of the surrounding text that stand for the region's inputs (for ops whose regions use
        outside values); None makes the inputs block arguments.
        """
        ...


class OpDef:
    """The definition of one op. Instances are stateless; attributes travel separately."""

    name: str = ""
    #: Whether each element of the result depends on the operands' elements at its own index alone.
    pointwise: ClassVar[bool] = False
    traits: Traits = Traits.NONE
    #: StableHLO attribute name -> codec. Attributes that StableHLO does not spell are absent.
    attributes: Mapping[str, Codec] = {}
    #: Attributes that StableHLO does not spell, as the results' types tell them: ``shape`` and ``dtype`` (the last
    #: result's), ``result_types``. An op that states the latter has these types, whatever its operands are.
    stated: ClassVar[tuple[str, ...]] = ()
    #: Whether it computes; False for what only makes or moves elements.
    computes: ClassVar[bool] = True
    #: False: never merged, repeated, dropped or reordered against other impure ops.
    pure: ClassVar[bool] = True
    #: The op's name in MLIR, ``stablehlo.<name>`` unless stated.
    mlir_name: str = ""
    #: Whether compilers have what takes its result read its operand, so that nothing of it is written to memory.
    read_in_place: ClassVar[bool] = False
    #: Whether `on_shards` can be written on windows of positional factors; else on standard tiles alone.
    windows_by_place: ClassVar[bool] = False

    @property
    def spelling(self) -> str:
        return self.mlir_name or f"stablehlo.{self.name}"

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        """Result types; ProgramError (without the op's name, the caller adds it) when operands do not fit."""
        if "result_types" in self.stated:
            return tuple(attrs["result_types"])
        raise ProgramError("the op's definition has no `infer`, which says what type results")

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        """The sharding rule; by default everything must be replicated."""
        return replicated_rule(operands, results)

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        """The op's NumPy meaning on arrays of any fitting shape."""
        raise LoweringError(f"the definition of op {self.name!r} has no `evaluate`, so it runs on JAX alone")

    def localize(
        self, attrs: Attributes, operands: Types, results: Types, local_operands: Types, local_results: Types
    ) -> Attributes:
        """Attributes of the op on shard-local shapes; by default only what the results' types tell changes."""
        told = _told(local_results)
        changed = {name: told[name] for name in ("shape", "result_types") if name in attrs}
        return attrs.updated(**changed) if changed else attrs

    def reaches(self, attrs: Attributes, operands: Types, results: Types) -> Reaches | None:
        """Per operand and dimension which of its indices a result index needs; None: the op knows no windows but those
        that its pass factors hand on. Dimensions whose sharding factor is of kind ``permute`` are sharded through it.
        """
        return None

    def summed_reaches(self, attrs: Attributes, operands: Types, results: Types) -> Reaches | None:
        """Like `reaches`, which indices an index of the last operand meets, where the op sums over that operand's
        dimension `Reach.dim`: sharded, it leaves partial sums. `window_form` tells from its local size that it is."""
        return None

    def window_form(
        self, attrs: Attributes, operands: Types, results: Types, local_operands: Types, local_results: Types,
        windowed: Windowed,
    ) -> WindowForm:
        """The op on shards that hold, along the result dimensions ``windowed``, exactly what `reaches` says; along the
        other dimensions they hold everything, or equal shards of pass factors. By default it is as it was."""
        return WindowForm(attrs)

    def window_allowed(
        self, attrs: Attributes, operands: Types, results: Types, windows: Mapping[int, tuple[Dim, int]]
    ) -> bool:
        """Whether the op can be computed on these windows: per result dimension that it reaches along, the window that
        is wanted, and over how many devices."""
        return True

    def on_shards(self, attrs: Attributes, program: ShardProgram, regions: Regions = ()) -> tuple[int, ...]:
        """The results on shards of which some positional factor is sharded, as values of the program written."""
        raise NotImplementedError(self.name)

    def flops(self, attrs: Attributes, operands: Types, results: Types) -> float:
        """Floating-point operations on these (local) shapes; by default one per result element if it computes."""
        return float(sum(t.elements for t in results)) if self.computes else 0.0

    def touched(self, operands: Types, results: Types) -> float:
        """Bytes of memory read and written on these (local) types; by default all operands and results, or none of what
        is read in place."""
        return 0.0 if self.read_in_place else float(sum(t.bytes for t in (*operands, *results)))

    def from_mlir(self, attrs: dict[str, Any], operands: Types, results: Types) -> dict[str, Any]:
        """Complete attributes read from text; by default with what is ``stated``."""
        told = _told(results) if self.stated else {}
        return {**attrs, **{name: told[name] for name in self.stated}}

    def emit(self, attrs: Attributes, operands: Values, results: Types, regions: Regions, printer: Printer) -> Printed:
        """MLIR lines of the op, and its results' names; by default one op in the generic form.

        Results may be shard-local. The inputs of the regions become block arguments.
        """
        texts = [printer.region(region) for region in regions]
        return printer.operation(self.spelling, encode_attributes(self.attributes, attrs), operands, results, texts)


def _told(results: Types) -> dict[str, Any]:
    last = {"shape": results[-1].shape, "dtype": results[-1].dtype} if results else {}
    return {**last, "result_types": tuple(results)}


def replicated_rule(operands: Types, results: Types) -> FactorRule:
    """The rule that is safe for any deterministic op: nothing is sharded."""
    factors: list[Factor] = []

    def dims(types: Types) -> tuple[tuple[tuple[int, ...], ...], ...]:
        out = []
        for t in types:
            row = []
            for n in t.shape:
                factors.append(Factor(n, REPLICATE))
                row.append((len(factors) - 1,))
            out.append(tuple(row))
        return tuple(out)

    ins, outs = dims(operands), dims(results)
    return FactorRule(tuple(factors), ins, outs)


_REGISTRY: dict[str, OpDef] = {}


def register(definition: OpDef) -> OpDef:
    """Add a definition under its name; a second one of the same name is an error."""
    if definition.name in _REGISTRY:
        raise ProgramError(f"op {definition.name!r} is already registered")
    _REGISTRY[definition.name] = definition
    return definition


def get(name: str) -> OpDef:
    """The definition of an op; ProgramError for an unknown name."""
    try:
        return _REGISTRY[name]
    except KeyError:
        raise ProgramError(unknown(name)) from None


def spelled(mlir_name: str) -> OpDef | None:
    """The definition of an op of MLIR that is spelled like this; None where there is none."""
    found = _REGISTRY.get(mlir_name.removeprefix("stablehlo."))
    return found if found is not None and found.spelling == mlir_name else None


def unknown(name: str) -> str:
    """What is said of a name that no op has."""
    near = [n for n in _REGISTRY if n.startswith(name)] or get_close_matches(name, _REGISTRY)
    also = f"; near it: {', '.join(sorted(near)[:3])}" if near else ""
    return f"op {name!r} is not in the registry; ops have StableHLO's names{also}"


def known(name: str) -> bool:
    """Whether an op has a definition."""
    return name in _REGISTRY


def is_pure(name: str, regions: Sequence[Region] = ()) -> bool:
    """Whether neither an op nor anything in its regions has effects: it may be merged, and left out where unused.

    Names that are not registered (an e-graph's own) stand for pure things.
    """
    found = _REGISTRY.get(name)
    pure = found is None or found.pure
    return pure if not regions else pure and all(
        is_pure(inner.name, inner.regions) for region in regions for inner in region.ops
    )


def names() -> tuple[str, ...]:
    """All registered op names, sorted."""
    return tuple(sorted(_REGISTRY))
