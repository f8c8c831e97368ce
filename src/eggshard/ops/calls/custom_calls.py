"""NumPy meanings of a few custom calls that JAX emits on CPUs for common library functions."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from eggshard.errors import LoweringError
from eggshard.ops.arithmetic import current
from eggshard.ops.base import Arrays
from eggshard.ops.opaque_factors import PLACEMENTS
from eggshard.program.attributes import Attributes

Meaning = Callable[[Attributes, Arrays], tuple[np.ndarray, ...]]


def meaning_of(target: str) -> Meaning | None:
    """The NumPy function of a custom call, or None."""
    lapack = re.fullmatch(r"lapack_[sdcz](\w+)_ffi", target)
    return _LAPACK.get(lapack[1]) if lapack else _CALLS.get(target)


def _identity(attrs: Attributes, arrays: Arrays) -> tuple[np.ndarray, ...]:
    return tuple(arrays)


def _options(attrs: Attributes) -> dict[str, str]:
    """LAPACK's one-letter options: ``{uplo = 76 : ui8}`` to {"uplo": "L"}."""
    text = attrs.get("mhlo.backend_config") or attrs.get("backend_config") or ""
    return {name: chr(int(code)) for name, code in re.findall(r"(\w+) = (\d+) : ui8", text)}


def _option(attrs: Attributes, name: str) -> str:
    try:
        return _options(attrs)[name]
    except KeyError:
        raise LoweringError(f"custom call {attrs['call_target_name']!r} lacks the option {name!r}") from None


def _potrf(attrs: Attributes, arrays: Arrays) -> tuple[np.ndarray, ...]:
    """The Cholesky factor in the triangle that was read, the other one untouched; and the first pivot that failed."""
    a, lower = arrays[0], _option(attrs, "uplo") == "L"
    (factor,) = current().evaluate("cholesky", Attributes(lower=lower), arrays)
    failed = np.isnan(np.diagonal(factor, axis1=-2, axis2=-1).real)
    info = np.where(failed.any(axis=-1), failed.argmax(axis=-1) + 1, 0).astype(np.int32)
    kept = np.triu(a, 1) if lower else np.tril(a, -1)
    return factor + kept, info


def _trsm(attrs: Attributes, arrays: Arrays) -> tuple[np.ndarray, ...]:
    transposed = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}[_option(attrs, "trans_x")]
    spelled = Attributes(left_side=_option(attrs, "side") == "L", lower=_option(attrs, "uplo") == "L",
                         unit_diagonal=_option(attrs, "diag") == "U", transpose_a=transposed)
    return current().evaluate("triangular_solve", spelled, arrays)


_CALLS: dict[str, Meaning] = dict.fromkeys(PLACEMENTS, _identity)
_LAPACK: dict[str, Meaning] = {"potrf": _potrf, "trsm": _trsm}
