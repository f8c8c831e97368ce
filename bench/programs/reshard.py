"""Pure reshards: one tensor moves from one sharding to another and nothing is computed.

``PROGRAMS`` holds the fixed table, ``variants`` draws others like them. Shardings are written as in ``spec``:
dimensions apart by spaces, ``x,y`` for one dimension over two axes (x major), ``-`` for an unsharded dimension.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable

from jax import Array
from jax.lax import with_sharding_constraint

from bench.lower_bound import shardings, short
from bench.programs import Argument, Axes, BenchProgram, Reshard, axes_of, dimensions, spec

_FAMILY = "reshard"
_MATRIX = "1024x1024"
_CUBE = "256x64x64"

# name, mesh, shape, source, target. Control: XLA moves no more than the busiest device lacks.
_TABLE = (
    ("dim swap", "8", _MATRIX, "x -", "- x"),
    ("gather", "8", _MATRIX, "x -", "- -"),
    ("slice", "8", _MATRIX, "- -", "x -"),
    ("dim swap x", "4x2", _MATRIX, "x -", "- x"),
    ("dim swap xy", "4x2", _MATRIX, "x,y -", "- x,y"),
    ("axis order", "4x2", _MATRIX, "x,y -", "y,x -"),
    ("transpose split", "4x2", _MATRIX, "x y", "y x"),
    ("axis replace", "4x2", _MATRIX, "x -", "y -"),
    ("axis replace rev", "4x2", _MATRIX, "y -", "x -"),
    ("axis replace cube", "2x2x2", _MATRIX, "x -", "y -"),
    ("axis+dim replace", "4x2", _MATRIX, "x -", "- y"),
    ("move y minor", "4x2", _MATRIX, "x y", "x,y -"),
    ("move y major", "4x2", _MATRIX, "x y", "y,x -"),
    ("inverse minor", "4x2", _MATRIX, "x,y -", "x y"),
    ("inverse major", "4x2", _MATRIX, "y,x -", "x y"),
    ("partial gather minor", "4x2", _MATRIX, "x,y -", "x -"),
    ("partial gather major", "4x2", _MATRIX, "x,y -", "y -"),
    ("gather one of two", "4x2", _MATRIX, "x y", "x -"),
    ("xla#15207", "4x2", _CUBE, "y - x", "- x,y -"),
    ("xla#15207 inverse", "4x2", _CUBE, "- x,y -", "y - x"),
    ("xla#15207 yx", "4x2", _CUBE, "y - x", "- y,x -"),
    ("3D rotation left", "2x2x2", _CUBE, "x y z", "y z x"),
    ("3D rotation right", "2x2x2", _CUBE, "x y z", "z x y"),
    ("3D swap", "2x2x2", _CUBE, "x y z", "y x z"),
    ("3D merge", "2x2x2", _CUBE, "x y z", "x,y,z - -"),
    ("3D merge mid", "2x2x2", _CUBE, "x y z", "- x,y,z -"),
    ("3D unmerge", "2x2x2", _CUBE, "x,y,z - -", "x y z"),
    ("3D unmerge perm", "2x2x2", _CUBE, "x,y,z - -", "z y x"),
    ("3D order reverse", "2x2x2", _MATRIX, "x,y,z -", "z,y,x -"),
    ("3D order rotate", "2x2x2", _MATRIX, "x,y,z -", "y,z,x -"),
    ("3D pair move", "2x2x2", _CUBE, "x,y z -", "z x,y -"),
    ("3D pair move2", "2x2x2", _CUBE, "x,y z -", "- z x,y"),
    ("3D drop+move", "2x2x2", _CUBE, "x,y z -", "z x -"),
    ("3D add+move", "2x2x2", _CUBE, "x - -", "y x z"),
    ("3D pair shift", "2x2x2", _MATRIX, "x,y -", "y,z -"),
    ("3D pair shift back", "2x2x2", _MATRIX, "x,y -", "z,x -"),
    ("slice+A2A", "4x2", _CUBE, "x - -", "- x y"),
    ("A2A+gather", "4x2", _CUBE, "x - y", "- x -"),
    ("replicated to 2D", "4x2", _MATRIX, "- -", "x y"),
    ("tiny dim", "4x2", "1024x4", "x,y -", "- x"),
)

# Shardings by parts of an axis: PartitionSpec cannot say them, module text can.
_SUB_AXES = (
    ("swap sub-axes", "8", _MATRIX, "x:(1)2 x:(2)4", "x:(2)4 x:(1)2"),
    ("x to split", "8", _MATRIX, "x -", "x:(1)2 x:(2)4"),
    ("x to split reversed", "8", _MATRIX, "x -", "x:(2)4 x:(1)2"),
    ("regroup", "8", _MATRIX, "x:(1)2 x:(2)4", "x:(1)4 x:(4)2"),
    ("partial move", "8", _MATRIX, "x:(1)2 -", "- x:(2)4"),
)

# What users ran into; name, origin, and the reshard.
_ISSUES = (
    ("issue: slab to pencil", "openxla/xla#15207", "4x2", "256x256x256", "y - x", "- x,y -"),
    ("issue: transpose split", "pytorch/pytorch#132751", "4x2", "4096x4096", "x y", "y x"),
    ("issue: transpose split square", "pytorch/pytorch#134646", "2x2", "4096x4096", "x y", "y x"),
    ("issue: axis order", "pytorch/pytorch#160266", "4x2", "4096x4096", "x,y -", "y,x -"),
    ("issue: move minor axis", "pytorch/pytorch#131210", "2x2x2", "4096x4096", "x,y z", "x y,z"),
    ("issue: split and swap", "arXiv:2112.01075", "4x2", "4096x4096", "x,y -", "y x"),
    ("issue: shift both axes", "arXiv:2112.01075", "4x2", "256x256x256", "x y -", "- x y"),
)

_CONTROLS = frozenset(
    "dim swap,gather,slice,dim swap x,dim swap xy,axis order,axis replace,axis replace rev,axis replace cube,"
    "move y minor,inverse minor,partial gather minor,partial gather major,gather one of two,3D rotation left,"
    "3D rotation right,3D swap,3D order reverse,3D order rotate,3D pair move2,3D drop+move,3D add+move,"
    "3D pair shift,3D pair shift back,replicated to 2D,issue: transpose split square,issue: axis order".split(",")
)


def reshard_program(
    name: str,
    axes: Axes,
    shape: tuple[int, ...],
    source: str,
    target: str,
    *,
    dtype: str = "float32",
    spelling: str = "out_shardings",
    origin: str = "",
    control: bool = False,
) -> BenchProgram:
    """The identity from one sharding to another.

    ``spelling`` says where the target is written: ``out_shardings``, a ``constraint`` in the function, or ``both``.
    Shardings that name sub-axes become module text.
    """
    reshard = Reshard(axes, shape, dtype, source, target)
    argument = Argument(shape, source, dtype)
    if ":" in source + target:
        text = _module_text(axes, shape, source, target, dtype)
        return BenchProgram(
            name, _FAMILY, axes, (argument,), text=text, reshard=reshard, origin=origin, control=control
        )
    return BenchProgram(
        name,
        _FAMILY,
        axes,
        (argument,),
        function=_identity if spelling == "out_shardings" else _constrained(target),
        out_shardings=None if spelling == "constraint" else target,
        origin=origin,
        reshard=reshard,
        control=control,
    )


def uneven_program(rows: int, of: int = 1024, columns: int = 1024) -> BenchProgram:
    """The first ``rows`` of a row-sharded matrix, as rows that do not divide evenly, and then by columns.

    JAX does not allow uneven shardings of inputs and outputs, so the uneven one stands inside the program. It is not
    a pure reshard: the rows move to other owners before they move to columns.
    """
    rowwise = spec("x -")

    def crop(value: Array) -> Array:
        return with_sharding_constraint(value[:rows], rowwise)

    return BenchProgram(
        f"uneven rows {rows}",
        _FAMILY,
        axes_of("8"),
        (Argument((of, columns), "x -"),),
        function=crop,
        out_shardings="- x",
    )


def _identity(value: Array) -> Array:
    return value


def _constrained(target: str) -> Callable[[Array], Array]:
    target_spec = spec(target)

    def constrain(value: Array) -> Array:
        return with_sharding_constraint(value, target_spec)

    return constrain


_MLIR_TYPES = {"float32": "f32", "bfloat16": "bf16", "float16": "f16", "int8": "i8", "int32": "i32"}


def _module_text(axes: Axes, shape: tuple[int, ...], source: str, target: str, dtype: str) -> str:
    """A module whose only function returns its argument under another sharding."""
    devices = math.prod(size for _, size in axes)
    mesh = ", ".join(f'"{name}"={size}' for name, size in axes)
    tensor = f"tensor<{'x'.join(map(str, shape))}x{_MLIR_TYPES[dtype]}>"
    return f"""module @reshard attributes {{mhlo.num_partitions = {devices} : i32, mhlo.num_replicas = 1 : i32}} {{
  sdy.mesh @mesh = <[{mesh}]>
  func.func public @main(%arg0: {tensor} {{sdy.sharding = {_mlir_sharding(source)}}})
      -> ({tensor} {{sdy.sharding = {_mlir_sharding(target)}}}) {{
    return %arg0 : {tensor}
  }}
}}
"""


def _mlir_sharding(text: str) -> str:
    dims = []
    for dim in text.split():
        names = [] if dim == "-" else [axis.partition(":") for axis in dim.split(",")]
        dims.append("{" + ", ".join(f'"{name}"{colon}{part}' for name, colon, part in names) + "}")
    return f"#sdy.sharding<@mesh, [{', '.join(dims)}]>"


def _fixed() -> Iterable[BenchProgram]:
    for name, mesh, shape, source, target in _TABLE + _SUB_AXES:
        yield reshard_program(name, axes_of(mesh), dimensions(shape), source, target, control=name in _CONTROLS)
    for name, origin, mesh, shape, source, target in _ISSUES:
        control = name in _CONTROLS
        yield reshard_program(name, axes_of(mesh), dimensions(shape), source, target, origin=origin, control=control)
    for rows in (1000, 1003):
        yield uneven_program(rows)


PROGRAMS: tuple[BenchProgram, ...] = tuple(_fixed())


_VARIANT_MESHES = ("8", "4x2", "2x4", "2x2x2", "2x2", "2x3", "3x2", "6", "2x1x4")
_VARIANT_DTYPES = ("float32", "float32", "bfloat16", "float16", "int8", "int32", "complex64")


def variants(seed: int, count: int) -> list[BenchProgram]:
    """``count`` other reshards, the same for the same seed: any two shardings of a random tensor on a random mesh.

    Ranks 1 to 4, sizes that divide evenly and are mostly not powers of two, all axis orders, several dtypes and the
    three places where JAX lets a target be written.
    """
    random_ = random.Random(seed)
    programs: list[BenchProgram] = []
    while len(programs) < count:
        axes = axes_of(random_.choice(_VARIANT_MESHES))
        devices = math.prod(size for _, size in axes)
        rank = random_.choice((1, 2, 2, 2, 3, 3, 4))
        shape = tuple(devices * random_.choice((1, 2, 3, 5, 8, 16)) for _ in range(rank))
        if math.prod(shape) > 2**22:
            continue
        source, target = random_.sample([short(state) for state in shardings(dict(axes), shape)], 2)
        mesh = "x".join(str(size) for _, size in axes)
        programs.append(
            reshard_program(
                f"variant {seed}.{len(programs)}: {mesh} {source} to {target}",
                axes,
                shape,
                source,
                target,
                dtype=random_.choice(_VARIANT_DTYPES),
                spelling=random_.choice(("out_shardings", "constraint", "both")),
            )
        )
    return programs
