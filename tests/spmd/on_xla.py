"""Forms of ops on shards, many of them in one program that XLA compiles: from whole arrays to shards, and on them.

Every device is given whole arrays and cuts its shards out of them, so that XLA sees the cuts together with the op, as
it does in plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from tests.emit.devices import run_on_xla
from tests.ops.samples import Sample, types_of

from eggshard.costmodel import WireBytes
from eggshard.costmodel.pricing import Pricer
from eggshard.ops import registry
from eggshard.placement.transfer import Strategy
from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.placement import replicated
from eggshard.program.types import TensorType, mlir_dtype, numpy_dtype
from eggshard.reshard.window_routes import WindowRouter
from eggshard.spmd.on_shards import on_shards
from eggshard.steps.assemble import Assembler
from eggshard.steps.steps import Action, Local, StepPlan

#: Integers of less than a byte, which pass the boundary of an XLA program as bytes.
SMALL = ("i4", "ui4")
#: Those, and floats of a byte.
NARROW = (*SMALL, "f8E4M3FN", "f8E5M2")


class Form(NamedTuple):
    """An op on operands that lie as a strategy says, which `action` computes."""

    name: str
    sample: Sample
    strategy: Strategy
    action: Action | StepPlan


def form(mesh: Mesh, name: str, sample: Sample, strategy: Strategy) -> Form:
    """How an op without windows runs by a strategy."""
    attrs, arrays, regions = sample
    definition, operands = registry.get(name), types_of(arrays)
    results = definition.infer(attrs, operands, regions)
    if strategy.positional:
        return Form(name, sample, strategy, on_shards(mesh, name, attrs, regions, operands, results, strategy))
    local = [tuple(p.local_type(t) for t, p in zip(types, placements, strict=True))
             for types, placements in ((operands, strategy.operands), (results, strategy.results))]
    localized = definition.localize(attrs, operands, results, *local)
    return Form(name, sample, strategy, Local(name, localized, local[1], regions))


def converted(assembler: Assembler, value: int, dtype: str) -> int:
    """The value as another element type; the value itself where it is of that."""
    type_ = assembler.types[value]
    if type_.dtype == dtype:
        return value
    return assembler.emit(Local("convert", Attributes(dtype=dtype), (TensorType(type_.shape, dtype),)), (value,))[0]


def results_on_xla(mesh: Mesh, forms: Sequence[Form]) -> list[list[np.ndarray]]:
    """Per form what the devices hold of each result: one program, compiled once."""
    router = WindowRouter(mesh, Pricer(WireBytes(), mesh), max_rounds=99)
    assembler = Assembler(mesh, router)
    arrays: list[np.ndarray] = []
    given: dict[int, int] = {}
    ends: list[int] = []
    dtypes: list[np.dtype] = []
    for _, (_, operands, _), strategy, action in forms:
        values = []
        for array, type_, placement in zip(operands, types_of(operands), strategy.operands, strict=True):
            if id(array) not in given:
                arrays.append(array.astype(np.int8) if type_.dtype in SMALL else array)
                held = TensorType((1, *type_.shape), mlir_dtype(arrays[-1].dtype))
                value = assembler.reshape(assembler.input(held), type_.shape)
                given[id(array)] = converted(assembler, value, type_.dtype)
            whole = replicated(type_.shape)
            values.append(assembler.convert(given[id(array)], type_, whole, [placement])[placement])
        made = assembler.emit(action, tuple(assembler.mask(values, strategy)))
        for v in made:
            dtype = assembler.types[v].dtype
            ends.append(converted(assembler, v, "i8" if dtype in SMALL else dtype))
        ends[-len(made) :] = [assembler.reshape(v, (1, *assembler.types[v].shape)) for v in ends[-len(made) :]]
        dtypes += [numpy_dtype(assembler.types[v].dtype) for v in made]
    shards = [np.broadcast_to(a, (mesh.size, 1, *a.shape)) for a in arrays]
    with jax.enable_x64(True):
        found, _ = run_on_xla(assembler.build(ends), shards)
    taken = iter(np.asarray(f)[:, 0].astype(dtype) for f, dtype in zip(found, dtypes, strict=True))
    return [[next(taken) for _ in f.strategy.results] for f in forms]
