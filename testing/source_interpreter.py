"""A Triton kernel's source run by Triton's own interpreter, in a process of its own.

Triton decides between compiler and interpreter where a kernel is defined, by an environment variable. Its interpreter
takes tensors of a library that is not needed here; pointers are handed to it as it makes them itself.
"""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np


def run(function: Any, arguments: Mapping[str, Any], grid: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Run a function of a module under ``triton.jit``, given all its arguments, for every instance of a grid.

    arguments: arrays for pointers, of the elements pointed to, and numbers. Returns the arrays as the kernel left them.
    """
    request = pickle.dumps((function.__module__, function.__name__, dict(arguments), grid))
    done = subprocess.run([sys.executable, "-m", __name__], input=request, capture_output=True,
                          env={**os.environ, "TRITON_INTERPRET": "1"})
    if done.returncode:
        raise RuntimeError(done.stderr.decode()[-2000:])
    found: dict[str, np.ndarray] = pickle.loads(done.stdout)
    return found


def _serve() -> None:
    module, name, arguments, grid = pickle.load(sys.stdin.buffer)
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    arrays = {key: np.ascontiguousarray(given) for key, given in arguments.items() if isinstance(given, np.ndarray)}

    def pointer(array: np.ndarray) -> Any:
        element = tl.dtype(f"{'fp' if array.dtype.kind == 'f' else 'int'}{8 * array.dtype.itemsize}")
        type_ = tl.pointer_type(element)
        return tl.tensor(TensorHandle(np.array([array.ctypes.data], np.uint64), type_), type_)

    passed = {key: pointer(arrays[key]) if key in arrays else given for key, given in arguments.items()}
    getattr(importlib.import_module(module), name)[grid](**passed)
    pickle.dump(arrays, sys.stdout.buffer)


if __name__ == "__main__":
    _serve()
