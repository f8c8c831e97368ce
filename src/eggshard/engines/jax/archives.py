"""Array archives: NumPy's ``.npz``, also for element types unknown to NumPy."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from eggshard.errors import LoweringError
from eggshard.program.types import TensorType, numpy_dtype


def load_arrays(path: Path, types: Sequence[TensorType], names: Sequence[str] = ()) -> list[np.ndarray]:
    """One array per type: by their names, or in order where the archive's own are ``arr_0`` and so on.

    Arrays of an element type unknown to NumPy's files are taken by their bytes. LoweringError for a file that is no
    such archive, and for other names, or another number of arrays, than the program has.
    """
    try:
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise LoweringError(f"{path} holds a single array; write it with numpy.savez")
        with archive:
            in_order = [f"arr_{i}" for i in range(len(archive.files))]
            taken = in_order if set(in_order) == set(archive.files) else _named(path, archive.files, names)
            arrays = [archive[name] for name in taken]
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise LoweringError(f"{path} is no archive of arrays ({error}); write it with numpy.savez") from None
    if len(arrays) != len(types):
        raise LoweringError(f"{path} holds {len(arrays)} arrays, but the program takes {len(types)}")
    return [_typed(array, type_) for array, type_ in zip(arrays, types, strict=True)]


def save_arrays(path: Path, arrays: Sequence[np.ndarray], names: Sequence[str] = ()) -> None:
    """Write arrays for `load_arrays`: under their names, or as ``arr_0`` and so on where not all have one."""
    if len(set(filter(None, names))) == len(arrays) > 0:
        np.savez(path, **dict(zip(names, arrays, strict=True)))  # type: ignore[arg-type]
    else:
        np.savez(path, *arrays)


def _named(path: Path, held: Sequence[str], names: Sequence[str]) -> Sequence[str]:
    """The names, all of which an archive holds; in any other order arrays of one type would be mistaken silently."""
    missing = [name for name in names if name not in held]
    if missing or not names:
        raise LoweringError(
            f"{path} holds {', '.join(held)}, but the program takes {', '.join(names) or 'arrays without names'}; name "
            "them so, or give them in order, without names: numpy.savez(path, first, second)"
        )
    return names


def _typed(array: np.ndarray, type_: TensorType) -> np.ndarray:
    dtype = numpy_dtype(type_.dtype)
    return array.view(dtype) if array.dtype.kind == "V" and array.dtype.itemsize == dtype.itemsize else array
