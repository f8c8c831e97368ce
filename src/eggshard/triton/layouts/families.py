"""The linear layout of each kind of distributed encoding, at a shape.

What the kinds mean is stated by TritonGPU's dialect (its documentation of the attributes) and the layouts of the
matrix instructions by the PTX manual (mma, wgmma: "Matrix fragments") and AMD's matrix instruction calculator.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from eggshard.triton.layouts.encodings import Encoding
from eggshard.triton.layouts.linear import LinearLayout
from eggshard.triton.layouts.tile import Bases, Tile, clip_to

Shape = tuple[int, ...]


@lru_cache(maxsize=1 << 16)
def linear_layout(encoding: Encoding, shape: Shape) -> LinearLayout | None:
    """The layout of a tensor of the shape; None for a kind whose layout is not known (shared memory, other vendors'
    fragments), or fields that do not fit the shape."""
    family = _FAMILIES.get(encoding.kind)
    if family is None or encoding.opaque is not None or any(n < 1 or n & (n - 1) for n in shape):
        return None
    found = family(encoding, shape)
    return found if found is not None and found.surjective else None


def _vectors(encoding: Encoding, name: str) -> Bases:
    found = encoding.get(name, ())
    assert isinstance(found, tuple)
    return list(found)


def _blocks(encoding: Encoding) -> Bases:
    """The cluster's bases; none where the encoding does not print them: one block."""
    return _vectors(encoding, "CGALayout")


def _row_major(rank: int) -> list[int]:
    return list(reversed(range(rank)))


def _blocked(encoding: Encoding, shape: Shape) -> LinearLayout | None:
    order = encoding.ints("order")
    if len(order) != len(shape):
        return None
    tile = Tile(len(shape))
    tile.identities(encoding.ints("sizePerThread"), "register", order)
    tile.identities(encoding.ints("threadsPerWarp"), "lane", order)
    tile.identities(encoding.ints("warpsPerCTA"), "warp", order)
    return tile.fitted(shape, order, _blocks(encoding), repeats=False)


def _slice(encoding: Encoding, shape: Shape) -> LinearLayout | None:
    dim = encoding.integer("dim")
    parent = linear_layout(encoding.parent, (*shape[:dim], 1, *shape[dim:]))
    return None if parent is None else parent.without_axis(dim)


def _linear(encoding: Encoding, shape: Shape) -> LinearLayout | None:
    bases = {name: _vectors(encoding, name) for name in ("register", "lane", "warp", "block")}
    vectors = [v for found in bases.values() for v in found]
    if any(len(v) != len(shape) for v in vectors):
        return None
    tile = Tile(len(shape))
    tile.bases = bases
    tile.sizes = [1 << max((v[d].bit_length() for v in vectors), default=0) for d in range(len(shape))]
    moved = [d for v in bases["register"] for d, index in enumerate(v) if index]
    for dim in dict.fromkeys([*moved, *_row_major(len(shape))]):
        tile.identity(shape[dim] // tile.sizes[dim], "register", dim)
    clip_to(shape, tile.bases, repeats=False)
    return LinearLayout.of(shape, *(tile.bases[name] for name in ("register", "lane", "warp", "block")))


def _mma_tile(tile: Tile, rows: int, columns: int, width: int, outer: int, inner: int) -> Tile:
    """The fragment of an NVIDIA matrix instruction: 8 rows of 4 lanes, each lane ``width`` neighbours."""
    tile.identity(width, "register", inner).identity(4, "lane", inner).identity(8, "lane", outer)
    return tile.identity(rows // 8, "register", outer).identity(columns // (width * 4), "register", inner)


def _warp_order(mma: Encoding, rank: int) -> list[int]:
    order = _row_major(rank)
    if mma.integer("versionMajor") == 3:
        order[0], order[1] = order[1], order[0]
    return order


def _nvidia_mma(encoding: Encoding, shape: Shape) -> LinearLayout | None:
    rank, instruction = len(shape), encoding.ints("instrShape")
    warps = encoding.ints("warpsPerCTA")
    if rank < 2 or len(warps) != rank or encoding.integer("versionMajor") not in (2, 3):
        return None
    # Version 2 gives the shape of the tensor's rank, version 3 (m, n, k).
    rows, columns = instruction[-2:] if encoding.integer("versionMajor") == 2 else instruction[:2]
    tile = _mma_tile(Tile(rank), rows, columns, 2, rank - 2, rank - 1)
    tile.identities(warps, "warp", _warp_order(encoding, rank))
    return tile.fitted(shape, _row_major(rank), _blocks(encoding))


def _dot_operand(encoding: Encoding, shape: Shape) -> LinearLayout | None:
    family = _OPERANDS.get(encoding.parent.kind)
    return None if family is None or len(shape) < 2 else family(encoding, shape)


def _operand_dims(encoding: Encoding, rank: int) -> tuple[int, int]:
    """The dimension that a dot contracts, and the other one."""
    return (rank - 1, rank - 2) if encoding.integer("opIdx") == 0 else (rank - 2, rank - 1)


def _operand_blocks(encoding: Encoding, contracted: int) -> Bases:
    return [tuple(0 if d == contracted else b for d, b in enumerate(v)) for v in _blocks(encoding.parent)]


def _dot_order(encoding: Encoding, rank: int) -> list[int]:
    """Dimensions from the fastest: the contracted one, the other one, the batch."""
    return [*_operand_dims(encoding, rank), *_row_major(rank - 2)]


def _nvidia_operand(encoding: Encoding, shape: Shape) -> LinearLayout | None:
    mma, rank, width = encoding.parent, len(shape), encoding.integer("kWidth")
    warps = mma.ints("warpsPerCTA")
    if mma.integer("versionMajor") not in (2, 3) or len(warps) != rank or width < 1:
        return None
    contracted, other = _operand_dims(encoding, rank)
    instruction = mma.ints("instrShape")
    # Hopper's shape is (m, n, k) whatever the tensor's rank.
    rows = instruction[0] if mma.integer("versionMajor") == 3 else instruction[rank - 2]
    columns = width * (4 if rows == 8 else 8)
    tile = _mma_tile(Tile(rank), rows if encoding.integer("opIdx") == 0 else 8, columns, width, other, contracted)
    tile.identities(warps, "warp", _warp_order(mma, rank), without=contracted)
    return tile.fitted(shape, _dot_order(encoding, rank), _operand_blocks(encoding, contracted))


def _blocked_operand(encoding: Encoding, shape: Shape) -> LinearLayout | None:
    parent, rank = encoding.parent, len(shape)
    order = parent.ints("order")
    contracted, _ = _operand_dims(encoding, rank)
    if len(order) != rank:
        return None
    registers = list(parent.ints("sizePerThread"))
    registers[contracted] = shape[contracted]
    tile = Tile(rank).identities(registers, "register", order)
    tile.identities(parent.ints("threadsPerWarp"), "lane", order, without=contracted)
    tile.identities(parent.ints("warpsPerCTA"), "warp", order, without=contracted)
    return tile.fitted(shape, order, _operand_blocks(encoding, contracted))


def _amd_mfma(encoding: Encoding, shape: Shape) -> LinearLayout | None:
    rank, warps = len(shape), encoding.ints("warpsPerCTA")
    if rank < 2 or len(warps) != rank:
        return None
    rows, columns = encoding.ints("instrShape")[:2]
    per_warp = encoding.ints("tilesPerWarp") or (1,) * rank
    height = 1 if encoding.integer("elementBitWidth", 32) == 64 else 4
    m, n = rank - 2, rank - 1
    # Each lane holds `height` neighbours along one dimension; the lanes run along the other first.
    held, crossed, crossing = (n, m, rows) if encoding.get("isTransposed") == "true" else (m, n, columns)
    tile = Tile(rank).identity(height, "register", held)
    tile.identity(crossing, "lane", crossed).identity(64 // crossing, "lane", held)
    tile.identity(rows * columns // (64 * height), "register", held)
    # The tiles of a warp follow each other along n over the whole tensor, then along m.
    tile.identity(per_warp[n], "register", n).identity(warps[n], "warp", n)
    tile.identity(shape[n] // (columns * warps[n] * per_warp[n]), "register", n)
    tile.identity(per_warp[m], "register", m).identity(warps[m], "warp", m)
    if rank == 3:
        tile.identity(warps[0], "warp", 0)
    return tile.fitted(shape, _row_major(rank), _blocks(encoding))


def _mfma_operand(encoding: Encoding, shape: Shape) -> LinearLayout | None:
    mfma, rank, width = encoding.parent, len(shape), encoding.integer("kWidth")
    warps = mfma.ints("warpsPerCTA")
    if len(warps) != rank or width < 1:
        return None
    contracted, other = _operand_dims(encoding, rank)
    rows, columns = mfma.ints("instrShape")[:2]
    across = rows if encoding.integer("opIdx") == 0 else columns
    per_warp = (mfma.ints("tilesPerWarp") or (1,) * rank)[other]
    tile = Tile(rank).identity(width, "register", contracted)
    tile.identity(across, "lane", other).identity(64 // across, "lane", contracted)
    if across == 64:  # the operand of 64 rows or columns of a 4x64 or 64x4 instruction spans sixteen steps
        tile.identity(16, "register", contracted)
    tile.identity(shape[contracted] // tile.sizes[contracted], "register", contracted)
    tile.identity(per_warp, "register", other)
    tile.identities(warps, "warp", _row_major(rank))
    return tile.fitted(shape, _dot_order(encoding, rank), _blocks(mfma))


#: Rows and columns of an RDNA matrix instruction, in every version.
_WMMA = 16


def _wmma_warps(tile: Tile, encoding: Encoding, without: int | None = None) -> Tile:
    """Spread registers and warps over instructions, one basis after the other; along ``without`` they hold the same."""
    placed = encoding.vectors("ctaLayout")
    for hardware in ("register", "warp"):
        for vector in placed.get(hardware, ()):
            moved = [d for d, n in enumerate(vector) if n and d != without]
            if moved:
                tile.identity(2, hardware, moved[0])
            elif hardware == "warp":
                tile.zeros(2, hardware)
    return tile


def _amd_wmma(encoding: Encoding, shape: Shape) -> LinearLayout | None:
    """Of a result, half of the lanes hold the odd numbers along one dimension (version 1), or the upper eight. Not
    known in three dimensions, in which libtriton does not read its own text."""
    rank = len(shape)
    if rank != 2 or encoding.integer("version") not in (1, 2, 3):
        return None
    m, n = rank - 2, rank - 1
    held, crossed = (n, m) if encoding.get("isTranspose") == "true" else (m, n)
    tile = Tile(rank)
    if encoding.integer("version") == 1:
        tile.identity(_WMMA, "lane", crossed).identity(2, "lane", held).identity(_WMMA // 2, "register", held)
    else:
        tile.identity(_WMMA // 2, "register", held).identity(_WMMA, "lane", crossed).identity(2, "lane", held)
    return _wmma_warps(tile, encoding).fitted(shape, _row_major(rank), _blocks(encoding))


def _wmma_operand(encoding: Encoding, shape: Shape) -> LinearLayout | None:
    """Of an operand, the halves of a warp hold the same (version 1), or each other ``kWidth`` along the sum."""
    wmma, rank, width = encoding.parent, len(shape), encoding.integer("kWidth")
    if rank != 2 or wmma.integer("version") not in (1, 2, 3) or width < 1:
        return None
    contracted, other = _operand_dims(encoding, rank)
    steps = (wmma.ints("instrShape") or (_WMMA, _WMMA, _WMMA))[2]
    tile = Tile(rank).identity(width, "register", contracted).identity(_WMMA, "lane", other)
    if wmma.integer("version") == 1:
        tile.zeros(2, "lane")
    else:
        tile.identity(2, "lane", contracted).identity(steps // (2 * width), "register", contracted)
    _wmma_warps(tile, wmma, without=contracted)
    return tile.fitted(shape, _dot_order(encoding, rank), _operand_blocks(encoding, contracted))


_FAMILIES: dict[str, Callable[[Encoding, Shape], LinearLayout | None]] = {
    "ttg.blocked": _blocked,
    "ttg.slice": _slice,
    "ttg.linear": _linear,
    "ttg.nvidia_mma": _nvidia_mma,
    "ttg.dot_op": _dot_operand,
    "ttg.amd_mfma": _amd_mfma,
    "ttg.amd_wmma": _amd_wmma,
}
_OPERANDS: dict[str, Callable[[Encoding, Shape], LinearLayout | None]] = {
    "ttg.nvidia_mma": _nvidia_operand,
    "ttg.blocked": _blocked_operand,
    "ttg.amd_mfma": _mfma_operand,
    "ttg.amd_wmma": _wmma_operand,
}
