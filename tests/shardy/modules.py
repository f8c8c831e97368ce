"""Random modules with Shardy's annotations: valid by construction, the same for the same seed and keywords.

    random_module(7, families=("dot", "elementwise"), sub_axes=True, stated=1.0)

Ops stand in MLIR's generic form; shapes are small, so that the modules can be evaluated.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.shardy import module_regions as module_regions, module_rows as module_rows
from tests.shardy.module_ops import FAMILIES

from eggshard.program.axes import AxisRef
from eggshard.program.mesh import Mesh
from eggshard.program.sharding import DimSharding, Sharding, mesh_text

MESHES = ({"x": 4, "y": 2}, {"x": 2, "y": 2, "z": 2}, {"x": 2, "y": 4}, {"x": 8}, {"x": 2, "y": 2}, {"x": 2, "y": 3})
EVEN, UNEVEN = (4, 8, 8, 16), (1, 2, 3, 4, 5, 6, 7, 8, 9, 12)
COMMON = ("elementwise", "transpose", "reshape", "broadcast", "dot", "reduce", "slice", "concatenate")


@dataclass(frozen=True)
class Features:
    """What a module may hold. Probabilities are of a value (or dimension) that could have the thing."""

    #: Ops that are drawn, of `FAMILIES`; how many per function.
    families: tuple[str, ...] = COMMON
    length: int = 8
    #: Axes and sizes; drawn from `MESHES` if not given. meshes: how many, the further ones in another device order.
    mesh: dict[str, int] | None = None
    meshes: int = 1
    size_one_axes: bool = False
    inlined_meshes: bool = False
    #: Probability of a stated sharding, of arguments, function results, and op results.
    stated: float = 0.4
    #: Probability that an axis shards something, that a dimension is open, and that it has a priority.
    sharded: float = 0.6
    open: float = 0.4
    priorities: float = 0.0
    replicated: bool = False
    unreduced: bool = False
    sub_axes: bool = False
    #: Sizes that axes do not divide.
    uneven: bool = False
    #: Ops of Shardy's that name shardings: sharding constraints, reshards, groups.
    constraints: bool = False
    reshards: bool = False
    groups: bool = False
    #: Constants and scalar expansions, many of them equal. sdy_constants: as propagation's import leaves them.
    constants: bool = False
    sdy_constants: bool = False
    #: Ops with regions or data flow: any of while, case, barrier, manual, named. edges: their data-flow edges too.
    regions: tuple[str, ...] = ()
    edges: bool = False
    #: Probability of notes of propagation's on origins and edges, of arguments, results, ops and data-flow edges.
    notes: float = 0.0
    #: Edges at functions' arguments and the results of calls.
    function_edges: bool = False
    #: Functions besides main, which calls them if asked to.
    functions: int = 0
    calls: bool = False
    scalars: bool = False
    tokens: bool = False
    empty: bool = False
    main: str = "main"
    #: Functions return every value that nothing else uses.
    all_used: bool = False


class Value(NamedTuple):
    name: str
    shape: tuple[int, ...]
    dtype: str = "f32"

    @property
    def type(self) -> str:
        return tensor(self.shape, self.dtype)


def tensor(shape: Sequence[int], dtype: str = "f32") -> str:
    return f"tensor<{'x'.join([*map(str, shape), dtype])}>"


def random_module(seed: int, **keywords: Any) -> str:
    """The module of a seed, with the `Features` given by keyword."""
    return ModuleWriter(random.Random(seed), Features(**keywords)).text()


@dataclass
class Function:
    """What has been written of a function: arguments with shardings, lines, values in scope, callee types."""

    name: str
    arguments: list[tuple[Value, str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    results: list[Value] = field(default_factory=list)


class ModuleWriter:
    """Writes one module. Ops of `FAMILIES` take and leave values by `operand` and `emit`."""

    def __init__(self, rng: random.Random, features: Features) -> None:
        self.rng, self.features = rng, features
        axes = dict(features.mesh or rng.choice(MESHES))
        if features.size_one_axes:
            axes = dict(sorted({**axes, "one": 1, "unit": 1}.items(), key=lambda _: rng.random()))
        self.meshes = {"mesh": Mesh(axes)}
        for i in range(1, features.meshes):
            ids = list(range(Mesh(axes).size))
            rng.shuffle(ids)
            self.meshes[f"mesh_{i}"] = Mesh(axes, ids)
        self.mesh_name = "mesh"
        self.count = 0
        self.done: list[Function] = []
        #: Functions whose arguments may grow: not while a region is written, which is isolated or has its own values.
        self.depth = 0
        self.barred: tuple[str, ...] = ()

    # -- shardings ---------------------------------------------------------------------------------------------------

    @property
    def mesh(self) -> Mesh:
        return self.meshes[self.mesh_name]

    def maybe(self, probability: float) -> bool:
        return self.rng.random() < probability

    def sharding(self, shape: Sequence[int], **forced: Any) -> Sharding:
        """A valid sharding of that shape, in normal form."""
        rng, mesh, wants = self.rng, self.mesh, self.features
        free = [a for name, n in mesh.axes.items() if name not in self.barred for a in self._parts(name, n)]
        rng.shuffle(free)
        dims: list[list[AxisRef]] = [[] for _ in shape]
        left: list[AxisRef] = []
        for axis in free:
            fits = [i for i, n in enumerate(shape) if self._fits(n, [*dims[i], axis])]
            if fits and self.maybe(wants.sharded):
                dims[rng.choice(fits)].append(axis)
            else:
                left.append(axis)
        opened = forced.get("open", wants.open)
        whole = []
        for axes in dims:
            is_open = self.maybe(opened)
            priority = rng.randrange(3) if (axes or is_open) and self.maybe(wants.priorities) else None
            whole.append(DimSharding(tuple(axes), is_open, priority))
        replicated = [a for a in left if wants.replicated and self.maybe(0.3)]
        unreduced = [a for a in left if wants.unreduced and a not in replicated and self.maybe(0.3)]
        return Sharding(tuple(whole), tuple(replicated), tuple(unreduced)).canonical(mesh)

    def _parts(self, name: str, n: int) -> list[AxisRef]:
        if not self.features.sub_axes or n < 4 or self.maybe(0.4):
            return [AxisRef(name)]
        if n == 8 and self.maybe(0.5):
            return [AxisRef(name, 1, 2), AxisRef(name, 2, 2), AxisRef(name, 4, 2)]
        cut = 2 if n == 4 or self.maybe(0.5) else n // 2
        return [AxisRef(name, 1, cut), AxisRef(name, cut, n // cut)]

    def _fits(self, n: int, axes: Sequence[AxisRef]) -> bool:
        parts = math.prod(a.size or self.mesh.axes[a.name] for a in axes)
        return n > 0 and (parts <= n if self.features.uneven else n % parts == 0)

    def bound(self, sharding: Sharding) -> str:
        """``<@mesh, [...]>``."""
        mesh = f"mesh{mesh_text(self.mesh)}" if self.features.inlined_meshes else f"@{self.mesh_name}"
        return f"<{mesh}, {sharding}>"

    def argument_attributes(self, shape: Sequence[int]) -> str:
        stated = self.maybe(self.features.stated)
        listed = [f"sdy.sharding = #sdy.sharding{self.bound(self.sharding(shape))}"] if stated else []
        listed += self.notes(steps=False)
        return f" {{{', '.join(listed)}}}" if listed else ""

    def notes(self, results: int = 0, steps: bool = True) -> list[str]:
        """What propagation may have noted: of a value, or of an op with so many results; steps: along its edges."""
        axes = self.rng.sample(list(self.mesh.axes), k=self.rng.randint(1, len(self.mesh.axes)))
        origins = f"{{{', '.join(f'{axis} = {chr(34)}input: 0{chr(34)}' for axis in sorted(axes))}}}"
        listed = []
        if self.maybe(self.features.notes):
            listed.append(f"sdy.sharding_origins = {f'[{origins}]' if results else origins}")
        if steps and self.maybe(self.features.notes):
            taken = f'{{step-0 = [{{"{axes[0]}" = operand-0 -> [result-0]}}]}}'
            listed.append(f"sdy.propagation_edges = #sdy.propagation_edges<[{taken}]>")
        return listed

    def per_value(self, shapes: Sequence[Sequence[int]]) -> str:
        return f"#sdy.sharding_per_value<[{', '.join(self.bound(self.sharding(s)) for s in shapes)}]>"

    # -- values and ops ----------------------------------------------------------------------------------------------

    def size(self) -> int:
        if self.features.empty and self.maybe(0.1):
            return 0
        return self.rng.choice(UNEVEN if self.features.uneven else EVEN)

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        if rank is None:
            rank = self.rng.choice((0, 1, 2, 2, 3) if self.features.scalars else (1, 2, 2, 3))
        return tuple(self.size() for _ in range(rank))

    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def argument(self, shape: Sequence[int], dtype: str = "f32") -> Value:
        """A new argument of the function; within a region a constant, as regions may be isolated."""
        if self.depth:
            return self.constant(tuple(shape), dtype)
        value = Value(self.fresh(), tuple(shape), dtype)
        self.function.arguments.append((value, self.argument_attributes(shape)))
        behind = self.function_edge(value)
        if behind not in self.function.values:
            self.function.values.append(behind)
        return behind

    def operand(self, fits: Callable[[Value], bool] = lambda v: True, make: Sequence[int] | None = None) -> Value:
        """A float value in scope that fits, the later ones rather; or a new one of shape `make`."""
        found = [v for v in self.function.values if v.dtype == "f32" and fits(v)]
        if not found or self.maybe(0.15):
            return self.argument(self.shape() if make is None else make)
        return found[-1 - min(int(self.rng.expovariate(0.4)), len(found) - 1)]

    def constant(self, shape: tuple[int, ...], dtype: str = "f32", value: str | None = None) -> Value:
        value = value or self.rng.choice(("1.0", "2.0", "-0.5") if dtype == "f32" else ("0", "1"))
        op = "sdy.constant" if self.features.sdy_constants else "stablehlo.constant"
        return self.emit(op, (), [(shape, dtype)], f"value = dense<{value}> : {tensor(shape, dtype)}")[0]

    def emit(
        self, op: str, operands: Sequence[Value], results: Sequence[tuple[Sequence[int], str]], attributes: str = "",
        regions: Sequence[str] = (), stated: bool | None = None, keep: bool = True,
    ) -> list[Value]:  # fmt: skip
        """Write an op; its results are in scope if `keep`."""
        if self.maybe(self.features.stated) if stated is None else stated:
            sharding = f"sdy.sharding = {self.per_value([shape for shape, _ in results])}"
            attributes = f"{attributes}, {sharding}" if attributes else sharding
            attributes = ", ".join([attributes, *self.notes(len(results), bool(operands) and keep)])
        name = self.fresh()
        many = len(results) > 1
        values = [Value(f"{name}#{i}" if many else name, tuple(s), d) for i, (s, d) in enumerate(results)]
        types = ", ".join(v.type for v in values)
        head = f"{name}{f':{len(results)}' if many else ''} = " if results else ""
        body = f" ({', '.join(regions)})" if regions else ""
        self.function.lines.append(
            f'{head}"{op}"({", ".join(v.name for v in operands)}){body} {{{attributes}}}'
            f" : ({', '.join(v.type for v in operands)}) -> ({types})"
        )
        if keep:
            self.function.values += values
        return values

    @contextmanager
    def region(self, arguments: Sequence[Value], inside: Sequence[Value] | None = None) -> Any:
        """Collects the lines of a block with these arguments in a list; `inside` are the values that it may use."""
        outer, body = self.function, Function("")
        body.values = [*(outer.values if inside is None else inside), *arguments]
        self.function, self.depth = body, self.depth + 1
        head = f"^bb0({', '.join(f'{v.name}: {v.type}' for v in arguments)}):"
        written: list[str] = []
        try:
            yield written
        finally:
            self.function, self.depth = outer, self.depth - 1
            written.append("{" + "\n".join([head, *body.lines]) + "}")

    def terminate(self, op: str, values: Sequence[Value]) -> None:
        types = ", ".join(v.type for v in values)
        self.function.lines.append(f'"{op}"({", ".join(v.name for v in values)}) : ({types}) -> ()')

    def edge(self, value: Value, sharding: str = "") -> Value:
        """The value behind its data-flow edge, if the module has them; with this sharding, or a random one or none."""
        if not self.features.edges:
            return value
        if not sharding and self.maybe(0.7):
            sharding = self.bound(self.sharding(value.shape))
        stated = f" sharding={sharding}" if sharding else ""
        notes = self.notes(steps=bool(sharding))
        attributes = f" {{{', '.join(notes)}}}" if notes else ""
        name = self.fresh()
        self.function.lines.append(f"{name} = sdy.data_flow_edge {value.name}{stated}{attributes} : {value.type}")
        return Value(name, value.shape, value.dtype)

    def function_edge(self, value: Value) -> Value:
        """The value behind the edge of an argument or a call's result, if the module has them."""
        if not self.features.function_edges:
            return value
        return self.emit("sdy.func_data_flow_edge", [value], [(value.shape, value.dtype)])[0]

    # -- the module --------------------------------------------------------------------------------------------------

    def text(self) -> str:
        wants = self.features
        names = [*(f"f{i}" for i in range(wants.functions)), wants.main]
        written = [self._function(name) for name in names]
        meshes = [] if wants.inlined_meshes else [
            f"sdy.mesh @{name} = {mesh_text(mesh)}" for name, mesh in self.meshes.items()]
        attributes = f"mhlo.num_partitions = {self.mesh.size} : i32, mhlo.num_replicas = 1 : i32"
        return "\n".join([f"module attributes {{{attributes}}} {{", *meshes, *written, "}"]) + "\n"

    def _function(self, name: str) -> str:
        wants, rng = self.features, self.rng
        self.function = Function(name)
        self.mesh_name = rng.choice(list(self.meshes))
        families = [FAMILIES[f] for f in wants.families]
        extra = [FAMILIES[f] for f in self._extras()]
        for _ in range(wants.length):
            rng.choice(extra if extra and self.maybe(0.4) else families)(self)
        token = Value("%token", (), "")
        values = self.function.values or [self.argument(self.shape(2))]
        results = [values[-1], *rng.sample(values, k=min(len(values), rng.randrange(3)))]
        if wants.all_used:
            used = set(re.findall(r"%v\d+(?:#\d+)?", "\n".join(line.partition("=")[2] for line in self.function.lines)))
            results = [v for v in dict.fromkeys(values) if v.name not in used] or results
        self.function.results = results
        self.done.append(self.function)
        arguments = [f"{v.name}: {v.type}{attribute}" for v, attribute in self.function.arguments]
        declared = [f"{v.type}{self.argument_attributes(v.shape)}" for v in results]
        names, types = [v.name for v in results], [v.type for v in results]
        if wants.tokens:
            arguments, declared = [*arguments, f"{token.name}: !stablehlo.token"], ["!stablehlo.token", *declared]
            names, types = [token.name, *names], ["!stablehlo.token", *types]
        visibility = "public" if name == wants.main else "private"
        head = f"func.func {visibility} @{name}({', '.join(arguments)}) -> ({', '.join(declared)}) {{"
        last = f'"func.return"({", ".join(names)}) : ({", ".join(types)}) -> ()'
        return "\n".join([head, *self.function.lines, last, "}"])

    def _extras(self) -> list[str]:
        wants = self.features
        asked = {
            "constraint": wants.constraints, "reshard": wants.reshards, "group": wants.groups,
            "constant": wants.constants, "expansion": wants.constants,
            "call": wants.calls and bool(self.done) and not wants.tokens,
        }
        return [name for name, wanted in asked.items() if wanted] + list(wants.regions)
