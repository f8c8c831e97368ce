"""Two programs over prime fields: code written per device, for instance, and the function that it is to compute."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from eggshard.errors import EggshardError, MeshError, ProgramError
from eggshard.frontends.protocol import is_of_class
from eggshard.frontends.registry import load
from eggshard.ops.evaluate import evaluate_program
from eggshard.plan.proof import Proof
from eggshard.program.mesh import Mesh
from eggshard.program.program import Program
from eggshard.prove.exponents import holds_exponentials
from eggshard.prove.field import Refused
from eggshard.prove.proving import CHOICES, decided, enough_runs, with_exponents
from eggshard.prove.sizes.classes import Classes
from eggshard.prove.sizes.places import Needs
from eggshard.prove.sizes.shrinking import elements_of


def equivalent(first: Any, second: Any, *args: Any, mesh: Any = None, runs: int | None = None, seed: int = 0) -> Proof:
    """Compare two programs, or JAX functions of these arguments; see `eggshard.equivalent`."""
    began = time.perf_counter()
    try:
        a, b = (_program(source, args, mesh) for source in (first, second))
    except Refused as error:
        return Proof(None, refused=str(error))
    proof = compared_programs(a, b, runs, seed)
    return replace(proof, seconds=time.perf_counter() - began)


def compared_programs(a: Program, b: Program, runs: int | None = None, seed: int = 0) -> Proof:
    """Compare two programs; ProgramError where their types differ."""
    began = time.perf_counter()
    for what, types, others in (("take", a.input_types, b.input_types), ("return", a.output_types, b.output_types)):
        if types != others:
            raise ProgramError(
                f"the two programs {what} different types, and so are not equivalent: {_listed(types)} and "
                f"{_listed(others)}"
            )
    needs = Needs(Classes())
    for number, program in enumerate((a, b)):
        needs.follow((number,), program.region)
    pair = b, partial(evaluate_program, a)
    least = enough_runs(needs.degree) if runs is None else runs
    most = max(least, CHOICES) if runs is None else runs
    proof = decided(lambda k: pair, least, most, seed)
    if proof.equal is False and all(holds_exponentials(p.region) for p in (a, b)):
        least = enough_runs(needs.degree, exponents=True) if runs is None else runs
        proof = with_exponents(lambda k: pair, least, least, seed) or proof
    elements = elements_of(b.region)
    return replace(proof, degree=needs.degree, sizes=elements, whole=elements,
                   subject="the two programs", seconds=time.perf_counter() - began)


def _listed(types: Any) -> str:
    return ", ".join(map(str, types)) or "none"


def _program(source: Any, args: tuple[Any, ...], mesh: Any) -> Program:
    if is_of_class(source, "jax", "Compiled"):
        from eggshard.hlo.partitioned import compiled_program

        try:
            return compiled_program(source)
        except EggshardError as error:
            raise Refused(str(error)) from None
    if not args:
        return load(source)
    if not callable(source):
        raise EggshardError(
            f"{type(source).__name__} is no function of {len(args)} arguments; give functions, or programs alone"
        )
    return load(_lowered(source, args, mesh))


def _lowered(function: Callable[..., Any], args: tuple[Any, ...], mesh: Any) -> Any:
    """The function lowered by JAX for arguments of these shapes, none of them left out."""
    import jax

    structs = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jax.numpy.shape(leaf), jax.dtypes.result_type(leaf)), args)
    with _under(mesh):
        return jax.jit(function, keep_unused=True).trace(*structs).lower(lowering_platforms=("cpu",))


@contextmanager
def _under(mesh: Any) -> Iterator[None]:
    """JAX's mesh in effect: the one given; of axis names and sizes one without devices."""
    import jax

    if mesh is None:
        yield
        return
    if isinstance(mesh, jax.sharding.Mesh):
        with jax.set_mesh(mesh):
            yield
        return
    if not isinstance(mesh, jax.sharding.AbstractMesh):
        axes = Mesh.of(mesh).axes
        if not axes:
            raise MeshError("a mesh without axes has no devices to compute on; give e.g. mesh={'x': 4}")
        mesh = jax.sharding.AbstractMesh(tuple(axes.values()), tuple(axes))
    with jax.sharding.use_abstract_mesh(mesh):
        yield
