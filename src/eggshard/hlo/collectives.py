"""Wire bytes of a compiled XLA program, counted from its HLO text.

Every collective is priced by the bytes that a device *receives* under a ring algorithm, with ``r`` the bytes of the
result on one device and ``n`` the size of its group:

=====================  ==================================================================================
all-gather             ``r (n - 1) / n``
reduce-scatter         ``r (n - 1)``
all-reduce             ``2 r (n - 1) / n``, a reduce-scatter and an all-gather
all-to-all             ``r (n - 1) / n``
collective-permute     ``r`` where the device is the target of another one, else 0
collective-broadcast   ``r``, except on the first device of the group, which sends
ragged-all-to-all      ``r``: how much arrives depends on data, this is the most that can
=====================  ==================================================================================

Loops count as often as their known trip count says (their condition once more), calls are followed, and of the
branches of a conditional the one with the most bytes is counted. What the text says is counted, so a reduction that
a back end widened shows up in the wider type; ``CollectiveOp.dtypes`` tells.

Nothing is guessed: ``ProgramError`` is raised for a collective, a group spelling or a loop that cannot be counted.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from eggshard.errors import ProgramError
from eggshard.hlo.replica_groups import Groups, parse_pairs, parse_replica_groups
from eggshard.hlo.text import (
    ATTRIBUTE,
    CALLEES,
    INSTRUCTION,
    arrays_of,
    blocks,
    callees,
    known_trips,
    origin_of,
    plain,
    split,
)

_RING: Mapping[str, Callable[[int, int], float]] = {
    "all-gather": lambda r, n: r * (n - 1) / n,
    "all-reduce": lambda r, n: 2 * r * (n - 1) / n,
    "reduce-scatter": lambda r, n: r * (n - 1),
    "all-to-all": lambda r, n: r * (n - 1) / n,
    "ragged-all-to-all": lambda r, n: r if n > 1 else 0,
    "collective-broadcast": lambda r, n: r,
}
_KINDS = frozenset({*_RING, "collective-permute"})
_PARTITION_MODE = frozenset({"all-to-all", "ragged-all-to-all", "collective-permute", "collective-broadcast"})
_SHORT = {
    "all-gather": "AG",
    "all-reduce": "AR",
    "reduce-scatter": "RS",
    "all-to-all": "A2A",
    "collective-permute": "CP",
    "collective-broadcast": "CB",
    "ragged-all-to-all": "RA2A",
}

_HEADER = re.compile(r"^HloModule\b.*", re.MULTILINE)
_REPLICAS = re.compile(r"\breplica_count=(\d+)")
_PARTITIONS = re.compile(r"\bnum_partitions=(\d+)")
_COLLECTIVE = re.compile(ATTRIBUTE + r"(?:replica_groups|source_target_pairs|channel_id)=")
_GROUPS = re.compile(ATTRIBUTE + r"replica_groups=")
_PAIRS = re.compile(ATTRIBUTE + r"source_target_pairs=")
_CHANNEL = re.compile(ATTRIBUTE + r"channel_id=\d+")
_GLOBAL_IDS = re.compile(ATTRIBUTE + r"use_global_device_ids=true")


@dataclass(frozen=True)
class CollectiveOp:
    """One collective of a compiled program. Bytes are those of one execution on one device."""

    kind: str
    """The HLO opcode without ``-start``."""
    dtypes: tuple[str, ...]
    """Element type of each result array, as communicated."""
    group_size: int
    """Devices in the largest group; of a permute, how many devices receive from another one."""
    result_bytes: int
    """Size of the result on one device, all arrays of a variadic op together."""
    received: tuple[float, ...]
    """Bytes that each device receives."""
    trip_count: int
    """How often the program executes the op."""
    computation: str
    """Name of the computation that holds the op."""
    text: str
    """The instruction, without its metadata."""
    groups: tuple[tuple[int, ...], ...] = ()
    """Ids of the devices of each group; of a permute, of each source and its target."""
    origin: str = ""
    """What of the source the collective was made of, as ``jit(step)/mlp/dot_general``; empty where that is not told."""

    @property
    def wire_bytes(self) -> float:
        """Bytes received by the busiest device."""
        return max(self.received, default=0.0)

    @property
    def average_wire_bytes(self) -> float:
        """Bytes received by a device, averaged over all devices."""
        return math.fsum(self.received) / len(self.received)


@dataclass(frozen=True)
class CollectiveCount:
    """All collectives that a program executes, and their bytes per device over the whole program."""

    ops: tuple[CollectiveOp, ...]
    num_devices: int

    @property
    def wire_bytes(self) -> float:
        """Bytes as if the ops ran one after the other: the sum over ops of what the op's busiest device receives."""
        return math.fsum(op.wire_bytes * op.trip_count for op in self.ops)

    @property
    def average_wire_bytes(self) -> float:
        """Bytes that a device receives over the whole program, averaged over devices."""
        return math.fsum(op.average_wire_bytes * op.trip_count for op in self.ops)

    @cached_property
    def device_bytes(self) -> np.ndarray:
        """Bytes that each device receives over the whole program, by device id."""
        total = np.zeros(self.num_devices)
        for op in self.ops:
            total += op.trip_count * np.array(op.received)
        return total

    @property
    def busiest_device_bytes(self) -> float:
        """Bytes received over the whole program by the device that receives most; never above ``wire_bytes``."""
        return float(self.device_bytes.max(initial=0.0))

    @property
    def by_kind(self) -> dict[str, int]:
        """How many collectives of each kind are executed."""
        counts: Counter[str] = Counter()
        for op in self.ops:
            counts[op.kind] += op.trip_count
        return dict(sorted(counts.items()))

    @property
    def summary(self) -> str:
        """The executed collectives in short, such as ``2 AG + A2A``; ``none`` without any."""
        parts = (f"{count} {_SHORT[kind]}" if count > 1 else _SHORT[kind] for kind, count in self.by_kind.items())
        return " + ".join(parts) or "none"


def count_collectives(
    hlo_text: str, num_devices: int | None = None, unknown_trips: int | None = None
) -> CollectiveCount:
    """Count the collectives of a compiled program, ``compiled.as_text()``.

    The number of devices is read from the module's header; give ``num_devices`` for text without one. Raises
    ``ProgramError`` on anything that cannot be counted; loops whose trip count is not known count ``unknown_trips``
    times where that is given.
    """
    return _Counter(hlo_text, num_devices, unknown_trips).count()


class _Counter:
    """One pass over the text, then a walk from the entry computation."""

    def __init__(self, text: str, num_devices: int | None, unknown_trips: int | None) -> None:
        self.unknown_trips = unknown_trips
        header = _HEADER.search(text)
        self.replicas = _read_count(_REPLICAS, header)
        self.partitions = _read_count(_PARTITIONS, header)
        self.devices = self.replicas * self.partitions
        # Without a header to tell replicas from partitions, the ids in groups are taken as device ids.
        self.ids_are_devices = self.devices == 1
        if num_devices is not None:
            if self.devices not in (1, num_devices):
                raise ProgramError(
                    f"compiled HLO: num_devices={num_devices}, but its header says {self.replicas} replicas of "
                    f"{self.partitions} partitions; leave num_devices out"
                )
            self.devices = num_devices
        self.entry, lines = blocks(text)
        #: Per computation the lines that communicate or call.
        self.lines = {
            name: [(plain(line), origin_of(line)) for line in some if _COLLECTIVE.search(line) or CALLEES.search(line)]
            for name, some in lines.items()
        }
        self.known: dict[str, tuple[CollectiveOp, ...]] = {}

    def count(self) -> CollectiveCount:
        ops = self._of(self.entry)
        for name in self.lines.keys() - self.known.keys():
            if any(_COLLECTIVE.search(line) for line, _ in self.lines[name]):
                raise ProgramError(
                    f"compiled HLO: computation {name} communicates, but no call from the entry to it was "
                    "understood; its bytes cannot be counted"
                )
        return CollectiveCount(ops, self.devices)

    def _of(self, name: str) -> tuple[CollectiveOp, ...]:
        """The collectives that one execution of a computation executes."""
        if name not in self.known:
            if name not in self.lines:
                raise ProgramError(f"compiled HLO: computation {name} is called but not in the text")
            self.known[name] = tuple(op for line in self.lines[name] for op in self._of_line(*line, name))
        return self.known[name]

    def _of_line(self, line: str, origin: str, computation: str) -> tuple[CollectiveOp, ...]:
        match = INSTRUCTION.match(line)
        if match is None:
            raise ProgramError(f"compiled HLO: cannot read the instruction {line.strip()[:120]!r} in {computation}")
        opcode = match["opcode"]
        if opcode.endswith(("-done", "-update")):
            return ()  # the -start was counted
        if opcode in ("send", "recv") and "is_host_transfer=true" in line:
            return ()
        kind = opcode.removesuffix("-start")
        if kind in _KINDS:
            return (replace(self._collective(kind, match, line, computation), origin=origin),)
        if _COLLECTIVE.search(line, match.end()):
            raise ProgramError(f"compiled HLO: unknown kind of communication {opcode!r} in {computation}; not counted")
        called = callees(line, match.end())
        if opcode == "while":
            return self._loop(called, line, computation)
        if opcode == "conditional":
            branches = [self._of(name) for names in called.values() for name in names]
            return max(branches, key=_serial_bytes, default=())
        return tuple(op for names in called.values() for name in names for op in self._of(name))

    def _loop(self, called: Mapping[str, list[str]], line: str, computation: str) -> tuple[CollectiveOp, ...]:
        body = [op for name in called.get("body", ()) for op in self._of(name)]
        condition = [op for name in called.get("condition", ()) for op in self._of(name)]
        if not body and not condition:
            return ()
        trips = known_trips(line)
        if trips is None:
            trips = self.unknown_trips
        if trips is None:
            raise ProgramError(
                f"compiled HLO: a while loop in {computation} communicates, and its trip count is not known; "
                "its bytes cannot be counted"
            )
        return tuple(
            replace(op, trip_count=op.trip_count * times)
            for ops, times in ((body, trips), (condition, trips + 1))
            for op in ops
            if times
        )

    def _collective(self, kind: str, match: re.Match[str], line: str, computation: str) -> CollectiveOp:
        arrays = _result_arrays(kind, match, line)
        result_bytes = sum(size for _, size in arrays)
        received = [0.0] * self.devices
        pairs: list[tuple[int, int]] = []
        groups: Groups = []
        if kind == "collective-permute":
            if "slice_sizes=" in line:
                raise ProgramError(f"compiled HLO: in-place permutes are not counted: {line.strip()[:120]!r}")
            pairs = self._pairs(line)
            for source, target in pairs:
                if source != target:
                    received[target] += result_bytes
            group_size = sum(source != target for source, target in pairs)
        else:
            groups = self._groups(kind, line)
            for group in groups:
                for position, device in enumerate(group):
                    if kind != "collective-broadcast" or position:
                        received[device] += _RING[kind](result_bytes, len(group))
            group_size = max(map(len, groups), default=0)
        dtypes = tuple(dtype for dtype, _ in arrays)
        ids = tuple(map(tuple, pairs if kind == "collective-permute" else groups))
        return CollectiveOp(kind, dtypes, group_size, result_bytes, tuple(received), 1, computation, line.strip(), ids)

    def _groups(self, kind: str, line: str) -> Groups:
        """Groups of device ids; device = replica * partitions + partition."""
        match = _GROUPS.search(line)
        channel = _CHANNEL.search(line) is not None
        everywhere = self.ids_are_devices or _GLOBAL_IDS.search(line) is not None
        of_partitions = channel and kind in _PARTITION_MODE
        everyone = self.devices if everywhere else self.partitions if of_partitions else self.replicas
        groups = parse_replica_groups(line[match.end() :], everyone) if match else [list(range(everyone))]
        _check(line, [i for group in groups for i in group], everyone)
        parts = self.partitions
        if everywhere:
            return groups
        if of_partitions:  # within each replica
            return [[r * parts + p for p in group] for r in range(self.replicas) for group in groups]
        if channel:  # all partitions of the replicas in the group
            return [[r * parts + p for r in group for p in range(parts)] for group in groups]
        return [[r * parts + p for r in group] for p in range(parts) for group in groups]

    def _pairs(self, line: str) -> list[tuple[int, int]]:
        match = _PAIRS.search(line)
        if match is None:
            raise ProgramError(f"compiled HLO: a permute without source_target_pairs: {line.strip()[:120]!r}")
        pairs = parse_pairs(line[match.end() :])
        of_partitions = _CHANNEL.search(line) is not None
        everyone = self.devices if self.ids_are_devices else self.partitions if of_partitions else self.replicas
        _check(line, [i for pair in pairs for i in pair], everyone)
        parts = self.partitions
        if self.ids_are_devices:
            return pairs
        if of_partitions:
            return [(r * parts + s, r * parts + t) for r in range(self.replicas) for s, t in pairs]
        return [(s * parts + p, t * parts + p) for p in range(parts) for s, t in pairs]


def _check(line: str, ids: list[int], everyone: int) -> None:
    if max(ids, default=0) >= everyone:
        raise ProgramError(
            f"compiled HLO: participant {max(ids)} of {everyone} in {line.strip()[:120]!r}; "
            "give num_devices if the text has no header"
        )


def _result_arrays(kind: str, match: re.Match[str], line: str) -> list[tuple[str, int]]:
    """(dtype, bytes) of each array of the result. An asynchronous start also carries operands and contexts."""
    shape = match["shape"]
    if not match["opcode"].endswith("-start"):
        return arrays_of(shape)
    operands = len(split(line[match.end() - 1 :]))
    if kind == "all-reduce":  # starts with the results alone, or with (operands, results)
        arrays = arrays_of(shape)
        if len(arrays) in (operands, 2 * operands):
            return arrays[-operands:]
    elif len(parts := split(shape)) > 1:
        return arrays_of(parts[1])
    raise ProgramError(f"compiled HLO: cannot tell the results of {line.strip()[:120]!r} from its operands")


def _serial_bytes(ops: tuple[CollectiveOp, ...]) -> float:
    return sum(op.wire_bytes * op.trip_count for op in ops)


def _read_count(pattern: re.Pattern[str], header: re.Match[str] | None) -> int:
    match = pattern.search(header[0]) if header else None
    return int(match[1]) if match else 1
