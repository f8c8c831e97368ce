"""Parser of the replica groups of a compiled collective: every spelling of ``replica_groups``, as lists of device ids.

Four spellings are in use, all of them by one compiler version: an explicit list, an iota (``[2,4]<=[4,2]T(1,0)``),
an empty list that means everyone, and a mesh with the axes that the group spans.
"""

import math
import re
from collections.abc import Sequence

import numpy as np

from eggshard.errors import ProgramError

Groups = list[list[int]]

_INTS = re.compile(r"\d+")
_EXPLICIT = re.compile(r"\{((?:\{[\d,\s]*\}(?:,\s*)?)*)\}")
_GROUP = re.compile(r"\{([\d,\s]*)\}")
_IOTA = re.compile(r"\[(?P<dims>[\d,]+)\]<=\[(?P<reshape>[\d,]+)\](?:T\((?P<perm>[\d,]+)\))?")
_MESH = re.compile(
    r"@?mesh\[(?P<axes>[^\]]*)\](?:,\s*device_ids=\((?P<ids>(?:[^()]|\([^()]*\))*)\))?\s*\{(?P<used>[^{}]*)\}"
)
_MESH_AXIS = re.compile(r"'?([\w.\-]+)'?=(\d+)")
_USED_AXIS = re.compile(r"'?([\w.\-]+)'?(?::\((\d+)\)(\d+))?(?:,\s*|$)")
_DEVICE_IOTA = re.compile(r"\[(?P<reshape>[\d,]+)\](?:T\((?P<perm>[\d,]+)\))?")
_DEVICE_LIST = re.compile(r"\d+(?:,\s*\d+)*")


def parse_replica_groups(text: str, everyone: int) -> Groups:
    """The groups that ``text`` spells, where ``text`` begins right after ``replica_groups=``.

    ``everyone`` is how many participants the empty list stands for. Ids are those of the text: replicas, partitions
    or devices, as the collective's mode has it. Raises ``ProgramError`` on a spelling it does not know.
    """
    if match := _IOTA.match(text):
        ids = _iota(match["reshape"], match["perm"], text)
        rows, columns = _pair(_ints(match["dims"]), text)
        if rows * columns != ids.size:
            raise _unknown(text)
        return _rows(ids.reshape(rows, columns))
    if match := _MESH.match(text):
        return _mesh_groups(match["axes"], match["ids"], match["used"], text)
    if match := _EXPLICIT.match(text):
        groups = [_ints(group) for group in _GROUP.findall(match[1])]
        return groups if any(groups) else [list(range(everyone))]
    raise _unknown(text)


def parse_pairs(text: str) -> list[tuple[int, int]]:
    """The (source, target) pairs that ``text`` spells, where it begins right after ``source_target_pairs=``."""
    match = _EXPLICIT.match(text)
    if match is None:
        raise _unknown(text)
    return [_pair(_ints(group), text) for group in _GROUP.findall(match[1])]


def _mesh_groups(axes_text: str, ids_text: str | None, used_text: str, text: str) -> Groups:
    """Groups along axes or sub-axes of a mesh; a sub-axis ``a:(p)k`` is the middle of ``a`` seen as [p, k, rest]."""
    axes = [(name, int(size)) for name, size in _MESH_AXIS.findall(axes_text)]
    used = [(name, int(pre or 0), int(size or 0)) for name, pre, size in _USED_AXIS.findall(used_text)]
    if not axes or not {name for name, _, _ in used} <= {name for name, _ in axes}:
        raise _unknown(text)
    ids = _device_ids(ids_text, math.prod(size for _, size in axes), text)
    dims: list[int] = []  # the mesh's shape with every used axis cut where a used sub-axis begins and ends
    position: dict[tuple[str, int], int] = {}  # (axis, pre-size) -> which of dims it is
    for name, size in axes:
        done = 1
        for pre, extent in sorted((pre or 1, extent or size) for used_name, pre, extent in used if used_name == name):
            if pre % done or size % (pre * extent):
                raise _unknown(text)
            if pre > done:
                dims.append(pre // done)
            position[name, pre] = len(dims)
            dims.append(extent)
            done = pre * extent
        dims.append(size // done)
    along = [position[name, pre or 1] for name, pre, _ in used]
    across = [i for i in range(len(dims)) if i not in along]
    group_size = math.prod(dims[i] for i in along)
    return _rows(ids.reshape(dims).transpose(across + along).reshape(-1, group_size))


def _device_ids(ids_text: str | None, count: int, text: str) -> np.ndarray:
    if ids_text is None:
        return np.arange(count)
    if match := _DEVICE_IOTA.fullmatch(ids_text):
        ids = _iota(match["reshape"], match["perm"], text).reshape(-1)
    elif _DEVICE_LIST.fullmatch(ids_text):
        ids = np.array(_ints(ids_text))
    else:
        raise _unknown(text)
    if ids.size != count:
        raise _unknown(text)
    return ids


def _iota(reshape: str, perm: str | None, text: str) -> np.ndarray:
    shape = _ints(reshape)
    ids = np.arange(math.prod(shape)).reshape(shape)
    if perm is None:
        return ids
    order = _ints(perm)
    if sorted(order) != list(range(ids.ndim)):
        raise _unknown(text)
    return ids.transpose(order)


def _rows(ids: np.ndarray) -> Groups:
    return [[int(i) for i in row] for row in ids]


def _ints(text: str) -> list[int]:
    return [int(number) for number in _INTS.findall(text)]


def _pair(numbers: Sequence[int], text: str) -> tuple[int, int]:
    if len(numbers) != 2:
        raise _unknown(text)
    return numbers[0], numbers[1]


def _unknown(text: str) -> ProgramError:
    return ProgramError(
        f"compiled HLO: cannot read who takes part in a collective: {text[:80]!r}. "
        "Its bytes cannot be counted; please report the spelling."
    )
