"""Arrays in files: NumPy's ``.npz``, also for element types that NumPy itself does not know."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from eggshard.errors import LoweringError
from eggshard.program.types import TensorType, numpy_dtype


def load_arrays(path: Path, types: Sequence[TensorType], names: Sequence[str] = ()) -> list[np.ndarray]:
    """One array per type: under its name where the archive holds all names, else in the archive's order.

    Arrays of an element type unknown to NumPy's files are taken by their bytes. LoweringError for a file that is no
    such archive, or holds another number of arrays.
    """
    try:
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise LoweringError(f"{path} holds a single array; write it with numpy.savez")
        with archive:
            named = len(set(names)) == len(types) and set(names) <= set(archive.files)
            arrays = [archive[name] for name in (names if named else archive.files)]
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


def _typed(array: np.ndarray, type_: TensorType) -> np.ndarray:
    dtype = numpy_dtype(type_.dtype)
    return array.view(dtype) if array.dtype.kind == "V" and array.dtype.itemsize == dtype.itemsize else array
