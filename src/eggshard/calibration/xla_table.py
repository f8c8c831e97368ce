"""Reader of XLA's table of measured collectives, as steps with seconds.

The file is ``xla/service/gpu/model/default_collective_perf_table.txtpb`` of openxla/xla (Apache-2.0), one written by
its ``collective_perf_table_gen_main``, or a build of XLA with the text in it: the plugin of the wheel jax-cuda12-pjrt
0.10.2, or the wheel. It is read from wherever the user has it. An entry is an HLO instruction, f32, with the bytes of
the group's whole array (of a reduce-scatter the operand, of an all-gather the result) per second.

Sections are called by compute capability: sm_90 are eight GPUs of one node, H100s by their rates. Where that does not
say which GPU it is the name has it (sm_100_B200, sm_100_GB200). sm_103 are GB300s (openxla/xla pull request 36518).
"""

from __future__ import annotations

import math
import re
import zipfile
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

from eggshard.costmodel.machines.algorithms import ALL_REDUCE, KINDS
from eggshard.costmodel.protocol import StepInfo
from eggshard.costmodel.table import Measured
from eggshard.errors import CostModelError
from eggshard.program.mesh import Mesh

_BYTES = {"F32": 4, "S32": 4, "U32": 4, "F16": 2, "BF16": 2, "F64": 8, "S8": 1, "U8": 1}
_DTYPES = {"F32": "f32", "F16": "f16", "BF16": "bf16", "F64": "f64", "S32": "i32", "U32": "ui32", "S8": "i8"}
_TOKEN = re.compile(r'\s+|#[^\n]*|("(?:[^"\\]|\\.)*"|[{}:\[\],<>;]|[^\s{}:\[\],<>;"#]+)')
#: What entries of such a table have, and nothing else in a build of XLA.
_MARK = b"network_throughput_bytes_per_sec:"
_IN_WHEELS = (".so", ".txtpb")
#: Bytes that are read at once in search of the table.
_CHUNK = 1 << 24


def read_xla_table(path: str | Path) -> dict[str, list[Measured]]:
    """By device (such as ``sm_100_B200``) the collectives measured; CostModelError where the file has no such table.

    path: the table's text, a shared library with the text in it, or a wheel with such a library. A step's mesh has axes
    ``group`` and ``rest`` (all other devices). Of a permute ``op`` is its pattern: ``ring``, ``pairs`` (that send to
    each other), ``one-way`` or ``other``.
    """
    try:
        texts = list(_texts(Path(path)))
    except (OSError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        raise CostModelError(f"{path}: cannot read XLA's table of collectives: {error}") from None
    if not texts:
        raise CostModelError(
            f"{path}: no table of collectives of XLA's in text form; give "
            "xla/service/gpu/model/default_collective_perf_table.txtpb of openxla/xla, or a build that has it, such as "
            "the wheel of jax-cuda12-pjrt 0.10.2 (later ones may hold it in binary form)"
        )
    found: dict[str, list[Measured]] = {}
    try:
        for device in (device for text in texts for device in parse_text_proto(text.decode())["entries"]):
            found.setdefault(device["key"][0], []).extend(
                row for entry in device["value"][0].get("entries", ()) if (row := _measured(entry)))
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise CostModelError(
            f"{path}: no table of collectives of XLA's in text form ({error!r}); it is "
            "xla/service/gpu/model/default_collective_perf_table.txtpb of openxla/xla"
        ) from None
    return found


def _texts(path: Path) -> Iterator[bytes]:
    """The texts of tables in a file, or in the files of a wheel."""
    if not zipfile.is_zipfile(path):
        with path.open("rb") as file:
            yield from _marked(file)
        return
    with zipfile.ZipFile(path) as wheel:
        for name in (name for name in wheel.namelist() if name.endswith(_IN_WHEELS)):
            with wheel.open(name) as file:
                yield from _marked(file)


def _marked(file: IO[bytes]) -> Iterator[bytes]:
    """The pieces between zero bytes that have the mark: of a text file all of it, of a library a constant."""
    rest = b""
    for chunk in iter(partial(file.read, _CHUNK), b""):
        whole, _, rest = (rest + chunk).rpartition(b"\0")
        yield from _pieces(whole)
    yield from _pieces(rest)


def _pieces(data: bytes) -> Iterator[bytes]:
    at = data.find(_MARK)
    while at >= 0:
        end = data.find(b"\0", at)
        end = len(data) if end < 0 else end
        yield data[data.rfind(b"\0", 0, at) + 1:end]
        at = data.find(_MARK, end)


def parse_text_proto(text: str) -> dict[str, list[Any]]:
    """A protocol buffer message in text form: per field the values in order; strings, numbers, words or messages.

    Raises ValueError where the text is none.
    """
    tokens = _tokens(text)
    message, end = _message(tokens, "")
    if end:
        raise ValueError(f"{end!r} closes no message")
    return message


def _tokens(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if not match:
            raise ValueError(f"cannot read {text[at:at + 20]!r}")
        at = match.end()
        if match[1]:
            yield match[1]


def _message(tokens: Iterator[str], close: str) -> tuple[dict[str, list[Any]], str]:
    out: dict[str, list[Any]] = {}
    for name in tokens:
        if name in ("}", ">"):
            return out, name
        if name in (",", ";"):
            continue
        if not re.fullmatch(r"\w+", name):
            raise ValueError(f"{name!r} stands where the name of a field does")
        token = next(tokens, "")
        if token == ":":
            token = next(tokens, "")
        values = out.setdefault(name, [])
        if token == "[":
            while (token := next(tokens, "]")) != "]":
                if token != ",":
                    values.append(_value(token, tokens))
        else:
            values.append(_value(token, tokens))
    if close:
        raise ValueError("the text ends within a message")
    return out, ""


def _value(token: str, tokens: Iterator[str]) -> Any:
    if token in ("{", "<"):
        return _message(tokens, "}")[0]
    if token.startswith('"'):
        return token[1:-1]
    if re.fullmatch(r"-?\d+", token):
        return int(token)
    if not token or token in "}>:]":
        raise ValueError(f"{token!r} stands where a value does")
    return token


def _measured(entry: dict[str, list[Any]]) -> Measured | None:
    """An entry as a step; None for one of another kind, or without a time."""
    instruction = entry["instruction"][0]
    kind, shape = instruction["opcode"][0], instruction["shape"][0]
    rate = entry.get("network_throughput_bytes_per_sec", [0])[0]
    if kind not in (*KINDS, "collective-permute") or rate <= 0 or shape["element_type"][0] not in _BYTES:
        return None
    size = float(math.prod(shape.get("dimensions", [1])) * _BYTES[shape["element_type"][0]])
    dtype = _DTYPES.get(shape["element_type"][0], "f32")
    if kind == "collective-permute":
        pairs = [(p.get("source", [0])[0], p.get("target", [0])[0]) for p in instruction["source_target_pairs"]]
        devices = max(max(pair) for pair in pairs) + 1
        step = StepInfo(kind, Mesh({"group": devices}), op=_pattern(pairs), axes=("group",), group=devices,
                        wire_bytes=size, messages=1, memory_bytes=2 * size, dtype=dtype)
        return step, size / rate
    groups = instruction["iota_collective_device_list"][0]
    n, rest = groups["num_devices_per_group"][0], groups["num_replica_groups"][0]
    if n < 2:
        return None
    swapped = groups.get("iota_transpose_perm", [0]) != sorted(groups.get("iota_transpose_perm", [0]))
    mesh = Mesh({"group": n, "rest": rest} if swapped else {"rest": rest, "group": n})
    whole = size * n if kind == "reduce-scatter" else size
    wire = whole * (n - 1) / n * (2 if kind == ALL_REDUCE else 1)
    touched = whole + (whole / n if kind in ("all-gather", "reduce-scatter") else whole)
    return StepInfo(kind, mesh, axes=("group",), group=n, wire_bytes=wire, messages=1, memory_bytes=touched,
                    dtype=dtype), whole / rate


def _pattern(pairs: list[tuple[int, int]]) -> str:
    to = dict(pairs)
    if all(to.get(target) == source for source, target in pairs):
        return "pairs"
    if not set(to) & set(to.values()):
        return "one-way"
    at, seen = pairs[0][0], 0
    while seen < len(pairs) and at in to:
        at, seen = to[at], seen + 1
        if at == pairs[0][0]:
            break
    return "ring" if seen == len(pairs) else "other"
