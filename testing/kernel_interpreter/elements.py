"""Element types as NumPy holds them, constants from their text, and rounding to narrower floats."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from eggshard.errors import ProgramError
from eggshard.triton.kernels.ir import TensorType, Type
from eggshard.triton.kernels.text import read_type, scan, split

#: A tensor's elements; of a scalar, an array without dimensions. Pointers are byte addresses.
Array = np.ndarray[Any, np.dtype[Any]]

_NATIVE = {
    "i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "index": np.int64,
    "f16": np.float16, "f32": np.float32, "f64": np.float64,
}
_SMALL = {
    "bf16": "bfloat16", "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2", "f8E4M3FNUZ": "float8_e4m3fnuz",
    "f8E5M2FNUZ": "float8_e5m2fnuz", "f8E4M3B11FNUZ": "float8_e4m3b11fnuz", "f8E8M0FNU": "float8_e8m0fnu",
    "f6E2M3FN": "float6_e2m3fn", "f6E3M2FN": "float6_e3m2fn", "f4E2M1FN": "float4_e2m1fn",
}
_HEX = re.compile(r"0x[0-9A-Fa-f]+$")


@cache
def dtype_of(element: str) -> np.dtype[Any]:
    """The NumPy type of an element type's text; that of pointers is int64. Raises `ProgramError` for any other."""
    if element in _NATIVE:
        return np.dtype(_NATIVE[element])
    if element.startswith("!tt.ptr<"):
        return np.dtype(np.int64)
    if element not in _SMALL:
        raise ProgramError(f"the interpreter has no elements of type {element}")
    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _SMALL[element]))
    return found


def pointee(pointer: str) -> str:
    """The element type that a pointer type's text points to."""
    return split(pointer[len("!tt.ptr<"):-1])[0]


def spec(type_: Type) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
    """Shape and NumPy type of a value's type; None of what is neither tensor, number nor pointer."""
    if isinstance(type_, TensorType):
        return type_.shape, dtype_of(type_.element)
    if type_.startswith("!tt.ptr<") or type_ in _NATIVE or type_ in _SMALL:
        return (), dtype_of(type_)
    return None


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether elements are floats; NumPy counts the small ones among no kind."""
    return dtype.kind not in "bi"


def wide(values: Array) -> Array:
    """Floats narrower than f32 as f32, where arithmetic on them is done; others as they are."""
    return values.astype(np.float32) if values.dtype.itemsize < 4 and is_float(values.dtype) else values


def signed(values: Array) -> Array:
    """Integers by their sign; of i1, true is -1."""
    return -values.astype(np.int8) if values.dtype == np.bool_ else values


def unsigned(values: Array) -> Array:
    """Integers of the same bits without a sign; of i1, true is 1."""
    if values.dtype == np.bool_:
        return values.astype(np.uint8)
    return values.view(f"u{values.dtype.itemsize}")


def fitted(values: Array, dtype: np.dtype[Any]) -> Array:
    """Integers cut to a type's low bits."""
    return (values & 1).astype(np.bool_) if dtype == np.bool_ else values.astype(dtype, copy=False)


def bitcast(values: Array, dtype: np.dtype[Any]) -> Array:
    """The same bits as another type of the same width."""
    if values.dtype == dtype:
        return values
    if values.dtype.itemsize != dtype.itemsize:
        raise ProgramError(f"no bitcast from {values.dtype} to {dtype}: their widths differ")
    return np.ascontiguousarray(values).reshape(values.shape).view(dtype)


def rounded(values: Array, dtype: np.dtype[Any], toward_zero: bool = False) -> Array:
    """Floats as another float type, to the nearest and ties to even, or toward zero.

    Overflow goes to infinity; of 8-bit types and narrower to the largest finite number, as the conversions of GPUs do.
    """
    if values.dtype == dtype:
        return values
    source = wide(values)
    if dtype.itemsize == 1:
        largest = np.asarray(ml_dtypes.finfo(dtype).max).astype(source.dtype)
        source = np.clip(source, -largest, largest)  # keeps NaN
    result = np.asarray(source.astype(dtype))
    if toward_zero:
        bits = unsigned(bitcast(result, np.dtype(f"i{dtype.itemsize}")))
        beyond = np.abs(result.astype(source.dtype)) > np.abs(source)
        result = bitcast(bits - beyond.astype(bits.dtype), dtype)
    return result


def constant(text: str) -> Array:
    """The value of a typed attribute's text: ``0 : i32``, ``true``, ``dense<[1, 2]> : tensor<2xi32, #layout>``."""
    if text in ("true", "false"):
        return np.asarray(text == "true")
    end = scan(text, 0, ":")
    if end == len(text):
        raise ProgramError(f"not a constant: {text[:80]!r}")
    body, type_ = text[:end].strip(), read_type(text[end + 1:])
    if not isinstance(type_, TensorType):
        return np.asarray(_number(body, dtype_of(type_)))
    dtype = dtype_of(type_.element)
    if not body.startswith("dense<"):
        raise ProgramError(f"the interpreter has no constants like {text[:80]!r}")
    body = body[len("dense<"):-1].strip()
    if body.startswith('"0x'):
        return _blob(bytes.fromhex(body[3:-1]), type_.shape, dtype)
    flat = [_number(part, dtype) for part in re.split(r"[\s,\[\]]+", body) if part]
    values = np.array(flat, dtype)
    return np.broadcast_to(values[0], type_.shape) if len(flat) == 1 else values.reshape(type_.shape)


def _blob(data: bytes, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    count = int(np.prod(shape, dtype=np.int64))
    if dtype == np.bool_:
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
        if len(data) == 1:  # one byte is a splat
            return np.broadcast_to(np.asarray(data != b"\0"), shape)
        return bits[:count].astype(np.bool_).reshape(shape)
    values = np.frombuffer(data, dtype)
    return np.broadcast_to(values[0], shape) if len(values) == 1 else values.reshape(shape)


def _number(text: str, dtype: np.dtype[Any]) -> Any:
    if text in ("true", "false"):
        return np.bool_(text == "true")
    if is_float(dtype):
        if _HEX.match(text):
            return np.array(int(text, 16), f"u{dtype.itemsize}").view(dtype)[()]
        return np.float64(text).astype(dtype)
    number = int(text, 16) if _HEX.match(text) else int(text)
    if dtype == np.bool_:
        return np.bool_(number & 1)
    width = 8 * dtype.itemsize
    return np.array(number & ((1 << width) - 1), f"u{dtype.itemsize}").view(dtype)[()]
