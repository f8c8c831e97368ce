"""Codec of dense elements attributes: ``dense<...> : tensor<...>`` to NumPy arrays and back, bit for bit."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from eggshard.errors import ProgramError
from eggshard.program.types import TensorType, element_bytes, float_limits, mlir_dtype, numpy_dtype

#: Larger arrays are printed as one string of hexadecimal bytes.
LISTED_ELEMENTS = 64

_TYPE = re.compile(r"tensor<((?:\d+x)*)([^<>x]+|complex<f\d+>)>")
_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def parse_tensor_type(text: str) -> TensorType:
    """``tensor<4x8xf32>`` to a TensorType; ProgramError for anything but a static ranked tensor."""
    match = _TYPE.fullmatch(text.strip())
    if match is None:
        raise ProgramError(f"{text!r} is not the type of a tensor of static shape")
    dtype = "i64" if match[2] == "index" else match[2]
    numpy_dtype(dtype)
    return TensorType(tuple(int(n) for n in match[1].split("x") if n), dtype)


def parse_dense(text: str) -> np.ndarray:
    """The array that ``dense<...> : tensor<...>`` spells; a splat comes as a broadcast view.

    ProgramError for malformed text, and for ``dense_resource``, whose data is not in the text.
    """
    text = text.strip()
    match = re.fullmatch(r"dense<(.*)>\s*:\s*(tensor<.*>)", text, re.DOTALL)
    if match is None:
        raise ProgramError(f"{text[:80]!r} is not a dense elements attribute")
    body, type_ = match[1].strip(), parse_tensor_type(match[2])
    dtype = numpy_dtype(type_.dtype)
    if not body:
        return np.zeros(type_.shape, dtype)
    if body.startswith('"'):
        return _from_bytes(bytes.fromhex(body.strip('"')[2:]), type_)
    complex_ = type_.dtype.startswith("complex")
    words = re.findall(r"\([^)]*\)" if complex_ else r"[^\[\],\s]+", body)
    values = [_element(word, type_.dtype) for word in words]
    if len(values) == 1 and not body.startswith("["):
        return np.broadcast_to(np.array(values[0], dtype), type_.shape)
    if len(values) != type_.elements:
        raise ProgramError(f"{text[:80]!r} lists {len(values)} elements for {type_}")
    return np.array(values, dtype).reshape(type_.shape)


def dense_text(array: np.ndarray, splat: bool = False) -> str:
    """``dense<...> : tensor<...>`` of an array; ``splat``: all its elements are the same one."""
    type_ = TensorType(array.shape, mlir_dtype(array.dtype))
    if not array.size:
        return f"dense<> : {type_}"
    if splat:
        return f"dense<{_element_text(array.reshape(-1)[0], type_.dtype)}> : {type_}"
    sub_byte = type_.dtype in ("i1", "i2", "ui2", "i4", "ui4")
    if array.size > LISTED_ELEMENTS and not sub_byte:
        data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        return f'dense<"0x{data.hex().upper()}"> : {type_}'
    words = [_element_text(v, type_.dtype) for v in array.reshape(-1)]
    for n in reversed(array.shape):
        words = [f"[{', '.join(words[i : i + n])}]" for i in range(0, len(words), n)]
    return f"dense<{words[0]}> : {type_}"


def _from_bytes(data: bytes, type_: TensorType) -> np.ndarray:
    """Little-endian elements; a single element is a splat; i1 is one bit each, or one byte each, by the length."""
    dtype = numpy_dtype(type_.dtype)
    size = element_bytes(type_.dtype)
    if type_.dtype == "i1" and len(data) == -(-type_.elements // 8) and len(data) not in (1, type_.elements):
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")[: type_.elements]
        return bits.astype(np.bool_).reshape(type_.shape)
    if type_.dtype == "i1":
        array = np.frombuffer(data, np.uint8) != 0
    elif len(data) % size:
        raise ProgramError(f"a dense attribute of {type_} holds {len(data)} bytes")
    else:
        array = np.frombuffer(data, dtype)
    if array.size == 1:
        return np.broadcast_to(array.reshape(()), type_.shape)
    if array.size != type_.elements:
        raise ProgramError(f"a dense attribute of {type_} holds {len(data)} bytes")
    return np.reshape(array, type_.shape)


def _element(word: str, dtype: str) -> Any:
    if dtype == "i1":
        if word not in ("true", "false", "0", "1", "-1"):
            raise ProgramError(f"{word!r} is not a truth value")
        return word not in ("false", "0")
    if dtype.startswith("complex"):
        part = dtype[len("complex<") : -1]
        real, imaginary = (_element(w.strip(), part) for w in word.strip("()").split(","))
        out = np.zeros((), numpy_dtype(dtype))
        out.real, out.imag = real, imaginary
        return out[()]
    if dtype.startswith(("f", "bf")):
        if word.startswith("0x"):
            target = numpy_dtype(dtype)
            return np.array(int(word, 16), _BITS[target.itemsize]).view(target)[()]
        return np.float64(word).astype(numpy_dtype(dtype))
    return int(word, 0)


def _element_text(value: Any, dtype: str) -> str:
    if dtype == "i1":
        return "true" if value else "false"
    if dtype.startswith("complex"):
        part = dtype[len("complex<") : -1]
        number = np.asarray(value)
        return f"({_element_text(number.real[()], part)},{_element_text(number.imag[()], part)})"
    if not dtype.startswith(("f", "bf")):
        return str(int(value))
    if not np.isfinite(np.float64(value)) or float_limits(dtype).bits < 16:
        return f"0x{int(np.asarray(value).view(_BITS[numpy_dtype(dtype).itemsize])):0{2 * element_bytes(dtype)}X}"
    # MLIR wants a point before the exponent.
    mantissa, e, exponent = repr(float(value)).partition("e")
    return mantissa + ("" if "." in mantissa else ".0") + e + exponent
