"""Codecs, each of which converts one StableHLO attribute between MLIR's text and a hashable Python value.

A codec reads what ``str(attribute)`` prints (which is also what the generic op form holds) and prints what MLIR parses
back. An op's definition names the codec of each of its attributes; nothing else in the house spells attributes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from eggshard.errors import ProgramError
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.dense import dense_text, parse_dense


class _Required:
    def __repr__(self) -> str:
        return "required"


#: The default of an attribute that may not be left out.
REQUIRED: Any = _Required()


@dataclass(frozen=True, kw_only=True)
class Codec:
    """Translates one attribute. ``default`` is its value when the text leaves it out; REQUIRED: it may not.

    A value equal to the default is left out when printing.
    """

    default: Any = field(default=REQUIRED)

    def decode(self, text: str) -> Any:
        """The value of an attribute's text; ProgramError for text of another form."""
        raise NotImplementedError

    def encode(self, value: Any) -> str:
        """Text that `decode` reads back as ``value``."""
        raise NotImplementedError

    def optional(self, default: Any = None) -> Self:
        """Return a copy of the codec for an attribute that may be left out and then means ``default``."""
        return replace(self, default=default)

    def _refuse(self, text: str) -> ProgramError:
        return ProgramError(f"attribute text {text[:120]!r} is not what {type(self).__name__} reads")


@dataclass(frozen=True, kw_only=True)
class Integer(Codec):
    """``3 : i64`` <-> 3. ``bits`` 0 prints the bare number, as inside struct attributes."""

    bits: int = 64

    def decode(self, text: str) -> int:
        match = re.fullmatch(r"\s*(-?\d+)\s*(?::\s*\w+)?\s*", text)
        if match is None:
            raise self._refuse(text)
        return int(match[1])

    def encode(self, value: Any) -> str:
        return f"{value} : i{self.bits}" if self.bits else str(value)


@dataclass(frozen=True, kw_only=True)
class Flag(Codec):
    """``true`` <-> True; a unit attribute reads as True."""

    def decode(self, text: str) -> bool:
        text = text.strip()
        if text not in ("true", "false", "unit"):
            raise self._refuse(text)
        return text != "false"

    def encode(self, value: Any) -> str:
        return "true" if value else "false"


@dataclass(frozen=True, kw_only=True)
class Integers(Codec):
    """``array<i64: 1, 0>`` <-> (1, 0). Also reads ``[1, 0]`` and ``dense<[1, 0]> : tensor<2xi64>``.

    ``bits`` 0 prints ``[1, 0]``, as inside struct attributes.
    """

    bits: int = 64

    def decode(self, text: str) -> tuple[int, ...]:
        text = text.strip()
        if text.startswith("dense<"):
            return tuple(int(v) for v in parse_dense(text).reshape(-1))
        match = re.fullmatch(r"array<i\d+(?::([-\d,\s]*))?>", text) or re.fullmatch(r"\[([-\d,\s]*)\]", text)
        if match is None:
            raise self._refuse(text)
        return tuple(int(v) for v in (match[1] or "").split(",") if v.strip())

    def encode(self, value: Any) -> str:
        listed = ", ".join(str(int(v)) for v in value)
        if not self.bits:
            return f"[{listed}]"
        return f"array<i{self.bits}: {listed}>" if listed else f"array<i{self.bits}>"


@dataclass(frozen=True, kw_only=True)
class Flags(Codec):
    """``array<i1: true, false>`` <-> (True, False)."""

    def decode(self, text: str) -> tuple[bool, ...]:
        text = text.strip()
        if text.startswith("dense<"):
            return tuple(bool(v) for v in parse_dense(text).reshape(-1))
        match = re.fullmatch(r"array<i1(?::([\w,\s]*))?>", text)
        if match is None:
            raise self._refuse(text)
        return tuple(v.strip() == "true" for v in (match[1] or "").split(",") if v.strip())

    def encode(self, value: Any) -> str:
        listed = ", ".join("true" if v else "false" for v in value)
        return f"array<i1: {listed}>" if listed else "array<i1>"


@dataclass(frozen=True, kw_only=True)
class Matrix(Codec):
    """``dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>`` <-> ((0, 1), (2, 3)): padding, replica groups, device pairs."""

    def decode(self, text: str) -> tuple[tuple[int, ...], ...]:
        array = parse_dense(text)
        if array.ndim != 2:
            raise self._refuse(text)
        return tuple(tuple(int(v) for v in row) for row in array)

    def encode(self, value: Any) -> str:
        rows = [tuple(int(v) for v in row) for row in value]
        width = len(rows[0]) if rows else 2
        listed = ", ".join(f"[{', '.join(map(str, row))}]" for row in rows)
        return f"dense<{f'[{listed}]' if rows and width else ''}> : tensor<{len(rows)}x{width}xi64>"


@dataclass(frozen=True, kw_only=True)
class Dense(Codec):
    """``dense<...> : tensor<...>`` <-> Literal, bit for bit, for every element type of programs."""

    def decode(self, text: str) -> Literal:
        return Literal(parse_dense(text))

    def encode(self, value: Any) -> str:
        return dense_text(value.array, splat=value.splat)


@dataclass(frozen=True, kw_only=True)
class String(Codec):
    """``"name"`` <-> name, with MLIR's escapes (``\\22`` is a double quote)."""

    def decode(self, text: str) -> str:
        text = text.strip()
        if len(text) < 2 or text[0] != '"' or text[-1] != '"':
            raise self._refuse(text)
        raw = re.sub(rb"\\([0-9A-Fa-f]{2}|.)", _unescape, text[1:-1].encode(), flags=re.DOTALL)
        return raw.decode(errors="surrogateescape")

    def encode(self, value: Any) -> str:
        raw = str(value).encode(errors="surrogateescape")
        plain = "".join(chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:02X}" for b in raw)
        return f'"{plain}"'


@dataclass(frozen=True, kw_only=True)
class Verbatim(Codec):
    """Any attribute, kept as its text; ``word`` asks for one bare word, as element types inside struct attributes."""

    word: bool = False

    def decode(self, text: str) -> str:
        text = text.strip()
        if self.word and not re.fullmatch(r"[\w.]+", text):
            raise self._refuse(text)
        return text

    def encode(self, value: Any) -> str:
        return str(value)


@dataclass(frozen=True)
class Enum(Codec):
    """``#stablehlo<comparison_direction LT>`` <-> LT. ``bare`` prints the word alone."""

    kind: str
    dialect: str = "stablehlo"

    def decode(self, text: str) -> str:
        match = re.fullmatch(r"#\w+<\s*(\w+)\s+(\w+)\s*>", text.strip())
        if match is None or match[1] != self.kind:
            raise self._refuse(text)
        return match[2]

    def encode(self, value: Any) -> str:
        return f"#{self.dialect}<{self.kind} {value}>"


@dataclass(frozen=True)
class ListOf(Codec):
    """``[a, b]`` <-> a tuple of what the element codec reads."""

    element: Codec

    def decode(self, text: str) -> tuple[Any, ...]:
        text = text.strip()
        if not (text.startswith("[") and text.endswith("]")):
            raise self._refuse(text)
        return tuple(self.element.decode(part) for part in split_top_level(text[1:-1]))

    def encode(self, value: Any) -> str:
        return f"[{', '.join(self.element.encode(v) for v in value)}]"


@dataclass(frozen=True)
class Struct(Codec):
    """``#stablehlo.gather<offset_dims = [1], index_vector_dim = 1>`` <-> Attributes with every field present.

    ``fields``: (name, codec) pairs in printing order; a field equal to its codec's default is not printed.
    """

    name: str
    fields: tuple[tuple[str, Codec], ...]

    def decode(self, text: str) -> Attributes:
        text = text.strip()
        opening = f"#{self.name}<"
        if not (text.startswith(opening) and text.endswith(">")):
            raise self._refuse(text)
        parts: dict[str, str] = {}
        for part in split_top_level(text[len(opening) : -1]):
            key, equals, value = part.partition("=")
            if not equals:
                raise self._refuse(text)
            parts[key.strip()] = value
        codecs = dict(self.fields)
        if unknown := parts.keys() - codecs.keys():
            raise ProgramError(f"attribute #{self.name} has unknown fields {sorted(unknown)}: {text[:120]!r}")
        return Attributes(decode_attributes(codecs, parts))

    def encode(self, value: Any) -> str:
        listed = ", ".join(f"{key} = {text}" for key, text in encode_attributes(dict(self.fields), value))
        return f"#{self.name}<{listed}>"


_CONVOLUTION_SIDES = (("input", "b", "f"), ("kernel", "o", "i"), ("output", "b", "f"))


@dataclass(frozen=True, kw_only=True)
class ConvolutionDimensions(Codec):
    """``#stablehlo.conv<[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]>`` <-> Attributes.

    Fields: ``input_batch_dimension``, ``input_feature_dimension``, ``input_spatial_dimensions`` (position of spatial
    dimension 0, 1, ...), ``kernel_output_feature_dimension``, ``kernel_input_feature_dimension``,
    ``kernel_spatial_dimensions`` and the same as the input's for ``output``.
    """

    def decode(self, text: str) -> Attributes:
        match = re.fullmatch(r"#stablehlo\.conv<\[([^\]]*)\]\s*x\s*\[([^\]]*)\]\s*->\s*\[([^\]]*)\]>", text.strip())
        if match is None:
            raise self._refuse(text)
        out: dict[str, Any] = {}
        for (side, first, second), listed in zip(_CONVOLUTION_SIDES, match.groups(), strict=True):
            letters = [part.strip() for part in listed.split(",")]
            spatial = sorted((int(letter), i) for i, letter in enumerate(letters) if letter.isdigit())
            if sorted(letters) != sorted([first, second, *(str(i) for i in range(len(spatial)))]):
                raise self._refuse(text)
            names = _convolution_names(side)
            out[names[0]], out[names[1]] = letters.index(first), letters.index(second)
            out[names[2]] = tuple(i for _, i in spatial)
        return Attributes(out)

    def encode(self, value: Any) -> str:
        sides = []
        for side, first, second in _CONVOLUTION_SIDES:
            names = _convolution_names(side)
            letters = {value[names[0]]: first, value[names[1]]: second}
            letters.update({position: str(i) for i, position in enumerate(value[names[2]])})
            sides.append(f"[{', '.join(letters[i] for i in sorted(letters))}]")
        return f"#stablehlo.conv<{sides[0]}x{sides[1]}->{sides[2]}>"


def _convolution_names(side: str) -> tuple[str, str, str]:
    if side == "kernel":
        return "kernel_output_feature_dimension", "kernel_input_feature_dimension", "kernel_spatial_dimensions"
    return f"{side}_batch_dimension", f"{side}_feature_dimension", f"{side}_spatial_dimensions"


_LIST = Integers(bits=0, default=())
_NUMBER = Integer(bits=0)
_WORD = Verbatim(word=True)

DOT_DIMENSIONS = Struct("stablehlo.dot", tuple((name, _LIST) for name in (
    "lhs_batching_dimensions", "rhs_batching_dimensions", "lhs_contracting_dimensions", "rhs_contracting_dimensions")))
DOT_ALGORITHM = Struct("stablehlo.dot_algorithm", (
    ("lhs_precision_type", _WORD), ("rhs_precision_type", _WORD), ("accumulation_type", _WORD),
    ("lhs_component_count", _NUMBER), ("rhs_component_count", _NUMBER), ("num_primitive_operations", _NUMBER),
    ("allow_imprecise_accumulation", Flag())))
PRECISION = ListOf(Enum("precision"))
GATHER_DIMENSIONS = Struct("stablehlo.gather", (
    ("offset_dims", _LIST), ("collapsed_slice_dims", _LIST), ("operand_batching_dims", _LIST),
    ("start_indices_batching_dims", _LIST), ("start_index_map", _LIST), ("index_vector_dim", _NUMBER.optional(0))))
SCATTER_DIMENSIONS = Struct("stablehlo.scatter", (
    ("update_window_dims", _LIST), ("inserted_window_dims", _LIST), ("input_batching_dims", _LIST),
    ("scatter_indices_batching_dims", _LIST), ("scatter_dims_to_operand_dims", _LIST),
    ("index_vector_dim", _NUMBER.optional(0))))
CONVOLUTION_DIMENSIONS = ConvolutionDimensions()
FFT_TYPE = Enum("fft_type")
RNG_ALGORITHM = Enum("rng_algorithm")
RNG_DISTRIBUTION = Enum("rng_distribution")
TRANSPOSE = Enum("transpose")
COMPARISON_DIRECTION = Enum("comparison_direction")
COMPARISON_TYPE = Enum("comparison_type").optional()
#: How exact a transcendental function must be; None: the compiler's default.
RESULT_ACCURACY = Verbatim(default=None)


def decode_attributes(codecs: Mapping[str, Codec], texts: Mapping[str, str]) -> dict[str, Any]:
    """The values of all attributes that ``codecs`` name, defaults where ``texts`` lacks one.

    Attributes without a codec (discardable ones, shardings) are ignored. ProgramError names a missing attribute.
    """
    out = {}
    for name, codec in codecs.items():
        if name in texts:
            out[name] = codec.decode(texts[name])
        elif codec.default is REQUIRED:
            raise ProgramError(f"attribute {name!r} is missing")
        else:
            out[name] = codec.default
    return out


def encode_attributes(codecs: Mapping[str, Codec], values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(name, text) of every attribute with a codec whose value is not the default, in the codecs' order."""
    out = []
    for name, codec in codecs.items():
        if name not in values:
            if codec.default is REQUIRED:
                raise ProgramError(f"attribute {name!r} is missing")
        elif values[name] is not None and (codec.default is REQUIRED or values[name] != codec.default):
            out.append((name, codec.encode(values[name])))
    return out


def split_top_level(text: str, separator: str = ",") -> list[str]:
    """The parts of ``text`` between separators outside of any brackets and quotes, stripped; [] for blank text."""
    parts, start, depth, quoted = [], 0, 0, False
    for i, c in enumerate(text):
        if c == '"' and (i == 0 or text[i - 1] != "\\"):
            quoted = not quoted
        elif quoted:
            continue
        elif c in "[({<":
            depth += 1
        elif c in "])}" or (c == ">" and text[i - 1 : i] != "-"):
            depth -= 1
        elif c == separator and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    tail = text[start:].strip()
    return [*parts, tail] if parts or tail else []


_ESCAPES: dict[bytes, bytes] = {b"n": b"\n", b"t": b"\t"}


def _unescape(match: re.Match[bytes]) -> bytes:
    code = match[1]
    return bytes([int(code, 16)]) if len(code) == 2 else _ESCAPES.get(code, code)


def attribute_dictionary(pairs: Iterable[tuple[str, str]]) -> str:
    """``{a = 1 : i64, b = true}`` from (name, text) pairs."""
    return "{" + ", ".join(f"{name} = {text}" for name, text in pairs) + "}"
