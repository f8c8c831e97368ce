"""Benchmark programs, by family. A program is data: it lowers itself, and draws its inputs from a seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from typing import Any

import jax
import ml_dtypes
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

DEVICES = 8
"""Virtual CPU devices that the programs run on."""

Axes = tuple[tuple[str, int], ...]
"""A mesh: axis names and sizes, first axis major."""


def use_cpu_devices(count: int = DEVICES) -> None:
    """Make JAX offer ``count`` virtual CPU devices, or more where it is set to.

    Once JAX has looked at its devices this can only check them.
    """
    try:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", max(count, jax.config.jax_num_cpu_devices))
    except RuntimeError:
        pass  # too late to choose; the check below says whether it matters
    if len(jax.devices("cpu")) < count:
        raise RuntimeError(
            f"the benchmarks need {count} CPU devices and JAX has {len(jax.devices('cpu'))}: import bench before using "
            f"JAX, or set XLA_FLAGS=--xla_force_host_platform_device_count={count}"
        )


def spec(text: str) -> PartitionSpec:
    """A PartitionSpec in short: dimensions apart by spaces, axes of one dimension joined by commas, ``-`` for none.

    >>> spec("x,y - z")
    PartitionSpec(('x', 'y'), None, 'z')
    """
    dims = [tuple(axis for axis in dim.split(",") if axis != "-") for dim in text.split()]
    return PartitionSpec(*(axes[0] if len(axes) == 1 else axes or None for axes in dims))


def dimensions(text: str) -> tuple[int, ...]:
    """``"256x64x64"`` as a shape; ``""`` is a scalar's."""
    return tuple(int(size) for size in text.split("x") if size)


def axes_of(text: str) -> Axes:
    """``"4x2"`` as a mesh with axes x and y; up to x, y, z, w."""
    return tuple(zip("xyzw", dimensions(text), strict=False))


@dataclass(frozen=True)
class Argument:
    """One input array: its shape, dtype name, and sharding (``None`` leaves the choice to the compiler)."""

    shape: tuple[int, ...]
    sharding: str | None
    dtype: str = "float32"

    @property
    def struct(self) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(self.shape, _dtype(self.dtype))

    @classmethod
    def of(cls, text: str) -> Argument:
        """``"1024x512: x -"``, with the dtype in front where it is not float32: ``"bfloat16 1024x512: x -"``."""
        array, _, sharding = text.partition(":")
        dtype, _, shape = array.rpartition(" ")
        return cls(dimensions(shape), sharding.strip(), dtype or "float32")

    def draw(self, generator: np.random.Generator) -> np.ndarray:
        """Normal values, small integers where the dtype is integral.

        The variance is one over the second last dimension, so that a chain of matrix products stays of order one.
        """
        dtype = _dtype(self.dtype)
        if np.issubdtype(dtype, np.integer):
            return generator.integers(-8, 8, self.shape).astype(dtype)
        values: np.ndarray = generator.standard_normal(self.shape) / math.sqrt(
            self.shape[-2] if len(self.shape) > 1 else 1
        )
        if np.issubdtype(dtype, np.complexfloating):
            values = values + 1j * generator.permutation(values)
        return values.astype(dtype)


@dataclass(frozen=True)
class Reshard:
    """Moving one tensor from one sharding to another, as the lower bound sees it. Shardings may name sub-axes."""

    axes: Axes
    shape: tuple[int, ...]
    dtype: str
    source: str
    target: str

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return _dtype(self.dtype).itemsize


@dataclass(frozen=True)
class BenchProgram:
    """A sharded program to be planned.

    ``function`` takes one array per argument and may use ``jax.lax.with_sharding_constraint`` with bare
    PartitionSpecs: it is traced under the program's mesh. A program that JAX cannot express is given as ``text``.
    """

    name: str
    family: str
    axes: Axes
    arguments: tuple[Argument, ...]
    function: Callable[..., Any] | None = None
    out_shardings: Any = None
    """``None`` leaves outputs open; else a spec in short, or a tuple tree of them matching the function's result."""
    origin: str = ""
    """Where the program comes from: an issue, a paper, or a family of user code."""
    text: str | None = None
    reshard: Reshard | None = None
    """Set where the program does nothing but reshard one tensor, so that the lower bound applies."""
    control: bool = False
    """XLA is believed to be at the optimum already: a plan must not be worse."""
    equivalent: Callable[..., Any] | None = None
    """An algebraically equal function that communicates less under the same shardings: shows what can be won."""
    rounding: bool = False
    """The gain comes from reassociating floating-point sums or products; compare with a tolerance."""
    known: float | None = None
    """Wire bytes of the best plan known, by hand or by measurement; shown beside ours, and never given to a planner."""
    target: float | None = None
    """Wire bytes that a plan must not exceed; ``known`` where it is not given."""
    extra: bool = False
    """Left out of a run unless all programs are asked for."""
    own_inputs: bool = False
    """Verify plans on the program's own ``inputs``: deep programs magnify rounding on others."""

    def __post_init__(self) -> None:
        if (self.function is None) == (self.text is None):
            raise ValueError(f"{self.name}: give a function or a text, one of the two")

    @classmethod
    def define(
        cls,
        name: str,
        family: str,
        mesh: str,
        arguments: Sequence[str],
        function: Callable[..., Any],
        out: Any,
        **more: Any,
    ) -> BenchProgram:
        """A program in short: the mesh as in ``axes_of``, arguments as in ``Argument.of``, ``out`` as specs."""
        taken = tuple(Argument.of(text) for text in arguments)
        return cls(name, family, axes_of(mesh), taken, function=function, out_shardings=out, **more)

    @property
    def most(self) -> float | None:
        """Bytes above which a plan counts as failed."""
        return self.known if self.target is None else self.target

    def rewritten(self) -> BenchProgram:
        """The program with ``equivalent`` in place of ``function``."""
        if self.equivalent is None:
            raise ValueError(f"{self.name} has no equivalent function")
        return replace(self, name=f"{self.name}, rewritten", function=self.equivalent, equivalent=None)

    @property
    def num_devices(self) -> int:
        """The size of the mesh."""
        return math.prod(size for _, size in self.axes)

    @cached_property
    def mesh(self) -> Mesh:
        """The program's mesh over virtual CPU devices; its axes are left to the partitioner (``AxisType.Auto``)."""
        use_cpu_devices()
        devices = np.array(jax.devices("cpu")[: self.num_devices]).reshape([size for _, size in self.axes])
        names = tuple(name for name, _ in self.axes)
        return Mesh(devices, names, axis_types=(AxisType.Auto,) * len(names))

    @property
    def jitted(self) -> Any:
        """The function under ``jax.jit`` with the program's shardings.

        It shares no trace and no executable with another, so that what is timed is done.
        """
        return self._jitted(self.mesh)

    def lower(self) -> jax.stages.Lowered:
        """Trace and lower the program; nothing is compiled or cached."""
        with jax.set_mesh(self.mesh):
            return self.jitted.lower(*(argument.struct for argument in self.arguments))

    def lower_for(self, platform: str) -> jax.stages.Lowered:
        """The program lowered for a platform on its mesh without devices, of which none need be here."""
        names, sizes = (tuple(column) for column in zip(*self.axes, strict=True))
        mesh = AbstractMesh(sizes, names, axis_types=(AxisType.Auto,) * len(names))
        with jax.sharding.use_abstract_mesh(mesh):
            traced = self._jitted(mesh).trace(*(argument.struct for argument in self.arguments))
            return traced.lower(lowering_platforms=(platform,))

    @cached_property
    def module(self) -> str:
        """The program as StableHLO text with Shardy annotations."""
        return self.text if self.text is not None else self.lower().as_text()

    def inputs(self, seed: int = 0) -> tuple[np.ndarray, ...]:
        """One global array per argument, the same for the same seed."""
        generator = np.random.default_rng(seed)
        return tuple(argument.draw(generator) for argument in self.arguments)

    def _jitted(self, mesh: Mesh | AbstractMesh) -> Any:
        function = self.function
        if function is None:
            raise ValueError(f"{self.name} is given as text; there is no function to trace")

        @wraps(function)
        def own(*arrays: Any) -> Any:
            return function(*arrays)

        def sharding(text: str | None) -> NamedSharding | None:
            return None if text is None else NamedSharding(mesh, spec(text))

        shardings = tuple(sharding(argument.sharding) for argument in self.arguments)
        return jax.jit(own, in_shardings=shardings, out_shardings=jax.tree.map(sharding, self.out_shardings))


def by_name(programs: Sequence[BenchProgram]) -> dict[str, BenchProgram]:
    """Programs by their name, which must be unique."""
    named = {program.name: program for program in programs}
    if len(named) != len(programs):
        names = [program.name for program in programs]
        raise ValueError(f"program names repeat: {sorted({name for name in names if names.count(name) > 1})}")
    return named


def _dtype(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))
