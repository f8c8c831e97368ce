"""Linear algebra over a field: triangular systems and Cholesky factors by elimination, Fourier transforms at random.

Elimination is exact, with the square roots of pivots random as all square roots are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from eggshard.ops.arithmetic import Arithmetic
from eggshard.program.attributes import Attributes
from eggshard.prove.hashing import Hashes
from eggshard.prove.residues import Residues, is_complex, paired


class Field(Arithmetic):
    """What linear algebra is done with."""

    residues: Residues
    hashes: Hashes


_Meaning = Callable[[Field, Attributes, Sequence[np.ndarray]], np.ndarray]


def _adjoint(field: Field, a: np.ndarray) -> np.ndarray:
    return _conjugate(field, np.swapaxes(a, -1, -2))


def _conjugate(field: Field, a: np.ndarray) -> np.ndarray:
    return paired(a.real, field.residues.negate(a.imag)) if is_complex(a) else a


def _square_root(field: Field, a: np.ndarray) -> np.ndarray:
    """Of pivots, which are real: residues in the type of the matrix."""
    (root,) = field.evaluate("sqrt", Attributes(), [np.ascontiguousarray(np.real(a))])
    return paired(root, np.zeros_like(root)) if is_complex(a) else root


def _cholesky(field: Field, attrs: Attributes, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """See the op: a column of the factor is what is left of the matrix's, over the root of its first element."""
    r, a = field.residues, arrays[0] if attrs["lower"] else _adjoint(field, arrays[0])
    factor = np.zeros_like(a)
    for j in range(a.shape[-1]):
        done = _conjugate(field, factor[..., j, :j, None])
        column = r.subtract(a[..., j:, j], r.matmul(factor[..., j:, :j], done)[..., 0])
        pivot = _square_root(field, column[..., :1])
        factor[..., j:, j] = r.divide(column, np.broadcast_to(pivot, column.shape))
        factor[..., j, j] = pivot[..., 0]
    return factor if attrs["lower"] else _adjoint(field, factor)


def _triangular_solve(field: Field, attrs: Attributes, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """See the op, whose steps these are."""
    r, (a, b), lower = field.residues, arrays, attrs["lower"]
    if attrs["transpose_a"] != "NO_TRANSPOSE":
        a = _adjoint(field, a) if attrs["transpose_a"] == "ADJOINT" else np.swapaxes(a, -1, -2)
        lower = not lower
    if not attrs["left_side"]:
        a, b, lower = np.swapaxes(a, -1, -2), np.swapaxes(b, -1, -2), not lower
    x, n = np.array(b), a.shape[-1]
    for i in range(n) if lower else reversed(range(n)):
        solved = slice(0, i) if lower else slice(i + 1, n)
        row = r.subtract(x[..., i, :], r.matmul(a[..., i : i + 1, solved], x[..., solved, :])[..., 0, :])
        if not attrs["unit_diagonal"]:
            row = r.divide(row, np.broadcast_to(a[..., i, i, None], row.shape))
        x[..., i, :] = row
    return x if attrs["left_side"] else np.swapaxes(x, -1, -2)


def _fft(field: Field, attrs: Attributes, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """A linear map that is separable: one random map for each direction and length."""
    kind, lengths, out = attrs["fft_type"], tuple(attrs["fft_length"]), arrays[0]
    ways = list(range(len(lengths)))
    for k in ways[::-1] if kind == "RFFT" else ways:
        n, axis = lengths[k], out.ndim - len(lengths) + k
        half = k == ways[-1] and kind == "RFFT"
        lines = np.moveaxis(out, axis, 0)
        way = kind if k == ways[-1] else {"RFFT": "FFT", "IRFFT": "IFFT"}.get(kind, kind)
        made = _line_map(field, f"{way} {n}", n // 2 + 1 if half else n, lines.reshape(len(lines), -1))
        out = np.moveaxis(made.reshape(len(made), *lines.shape[1:]), 0, axis)
    return np.real(out).copy() if kind == "IRFFT" else out


def _line_map(field: Field, name: str, rows: int, lines: np.ndarray) -> np.ndarray:
    """``[rows, lines]`` from ``[columns, lines]``: sums over the first columns, more from row to row, and over all
    columns, with random weights everywhere; so it depends on all columns, and takes no matrix."""
    r, columns = field.residues, len(lines)

    def weights(which: str, count: int) -> np.ndarray:
        return field.hashes.complex_function(f"{which} of {name}", np.arange(count))[:, None]

    first = field.combine("add").accumulate(r.multiply(weights("first", columns), lines), axis=0, dtype=None)
    every = r.total(r.multiply(weights("every", columns), lines), (0,))
    reached = first[np.arange(rows) * columns // rows]
    return r.add(r.multiply(weights("row", rows), reached), r.multiply(weights("row of all", rows), every[None]))


#: Op name to meaning.
MEANINGS: dict[str, _Meaning] = {"cholesky": _cholesky, "fft": _fft, "triangular_solve": _triangular_solve}
