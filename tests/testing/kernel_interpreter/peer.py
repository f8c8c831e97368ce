"""Triton's own interpreter of its Python language, in a process of its own: cases in by stdin, outputs by stdout.

It takes torch's tensors; what it asks of them is little, and given here for NumPy's arrays.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Case(NamedTuple):
    """A kernel by name in the module of kernels, its arguments (arrays are buffers), grid and constants."""

    kernel: str
    arguments: list[Any]
    grid: tuple[int, ...]
    constants: dict[str, Any]


def interpreted(cases: Sequence[Case]) -> list[list[Any]]:
    """The arrays of each case's arguments as the kernel left them."""
    root = Path(__file__).parents[3]
    process = subprocess.run(
        [sys.executable, "-m", "tests.testing.kernel_interpreter.peer"], input=pickle.dumps(list(cases)), cwd=root,
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join([str(root), *sys.path])},
        capture_output=True, check=False)
    assert process.returncode == 0, process.stderr.decode()[-4000:]
    found: list[list[Any]] = pickle.loads(process.stdout)
    return found


class _Tensor:
    """An array as Triton's interpreter sees a tensor, and its storage."""

    def __init__(self, array: Any = None) -> None:
        self.array = array

    @property
    def dtype(self) -> str:
        return {"float8_e5m2": "float8e5", "float8_e4m3fn": "float8e4nv"}.get(str(self.array.dtype),
                                                                             str(self.array.dtype))

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)

    def untyped_storage(self) -> _Tensor:
        return self

    def cpu(self) -> _Tensor:
        return self

    def new_empty(self, size: int, device: str) -> _Tensor:
        return _Tensor()

    def set_(self, storage: _Tensor, offset: int, size: Any, stride: Any) -> None:
        self.array = storage.array

    def storage_offset(self) -> int:
        return 0

    def size(self) -> Any:
        return self.array.shape

    def stride(self) -> Any:
        return self.array.strides

    def copy_(self, other: _Tensor) -> None:
        assert other.array is self.array


def main() -> None:
    import numpy as np
    from tests.testing.kernel_interpreter import kernels

    cases, results = pickle.loads(sys.stdin.buffer.read()), []
    for case in cases:
        arguments = [_Tensor(a.copy()) if isinstance(a, np.ndarray) else a for a in case.arguments]
        with np.errstate(all="ignore"):
            getattr(kernels, case.kernel)[case.grid](*arguments, **case.constants)
        results.append([a.array for a in arguments if isinstance(a, _Tensor)])
    sys.stdout.buffer.write(pickle.dumps(results))


if __name__ == "__main__":
    main()
