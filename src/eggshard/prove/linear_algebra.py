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
        lines = np.moveaxis(out, axis, 0)
        way = kind if k == ways[-1] else {"RFFT": "FFT", "IRFFT": "IFFT"}.get(kind, kind)
        made = (_to_spectra if way in ("FFT", "RFFT") else _from_spectra)(field, way, n, lines.reshape(len(lines), -1))
        out = np.moveaxis(made.reshape(len(made), *lines.shape[1:]), 0, axis)
    return out


# Of both maps the weights at k and -k are conjugate, as a Fourier transform's are: spectra of what is real are their
# own mirror images, and half of one tells the rest. They depend on all elements, and take no matrix.


def _to_spectra(field: Field, kind: str, n: int, lines: np.ndarray) -> np.ndarray:
    """``[n, lines]``, or half of the rows, from ``[n, lines]``: sums over the first columns, more from row to row, and
    over all columns, with random weights everywhere."""
    r, half = field.residues, n // 2 + 1
    first, every = (field.hashes.function(f"{which} to spectra of {n}", np.arange(n))[:, None]
                    for which in ("first", "every"))
    reached = field.combine("add").accumulate(r.multiply(first, lines), axis=0, dtype=None)
    total = r.total(r.multiply(every, lines), (0,))[None]
    row, row_of_all = (_mirrored(field, f"{which} to spectra of {n}", n) for which in ("row", "row of all"))
    mirrored = np.minimum(np.arange(n), n - np.arange(n)) * n // half
    rows = slice(half if kind == "RFFT" else n)
    return r.add(r.multiply(row[rows], reached[mirrored[rows]]), r.multiply(row_of_all[rows], total))


def _from_spectra(field: Field, kind: str, n: int, lines: np.ndarray) -> np.ndarray:
    """``[n, lines]`` from as many rows, or half of them: the sums of `_to_spectra`, over pairs of rows k and -k."""
    r, half = field.residues, n // 2 + 1
    sums = []
    for which in ("first", "every"):
        rows = r.multiply(_mirrored(field, f"{which} from spectra of {n}", n)[: len(lines)], lines)
        if kind == "IRFFT":  # what a row and its conjugate add up to
            pairs = np.real(rows)
            other = pairs[1 : (n + 1) // 2]
        else:
            pairs, other = rows[:half], rows[half:][::-1]
        sums.append(np.concatenate([pairs[:1], r.add(pairs[1 : 1 + len(other)], other), pairs[1 + len(other) :]]))
    reached = field.combine("add").accumulate(sums[0], axis=0, dtype=None)[np.arange(n) * half // n]
    total = r.total(sums[1], (0,))[None]
    row, row_of_all = (field.hashes.function(f"{which} from spectra of {n}", np.arange(n))[:, None]
                       for which in ("row", "row of all"))
    return r.add(r.multiply(row, reached), r.multiply(row_of_all, total))


def _mirrored(field: Field, name: str, n: int) -> np.ndarray:
    """Random pairs, ``[n, 1]``, of which those at k and -k are conjugate."""
    half = n // 2 + 1
    found = field.hashes.complex_function(name, np.arange(half))[:, None]
    found.imag[[0, half - 1] if n % 2 == 0 else [0]] = 0
    return np.concatenate([found, _conjugate(field, found[1 : (n + 1) // 2])[::-1]])


#: Op name to meaning.
MEANINGS: dict[str, _Meaning] = {"cholesky": _cholesky, "fft": _fft, "triangular_solve": _triangular_solve}
