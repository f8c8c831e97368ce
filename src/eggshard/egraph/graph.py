"""The frozen e-graph that saturation hands to extraction, as plain Python data without an engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from eggshard.program.attributes import Attributes
from eggshard.program.program import Region
from eggshard.program.types import TensorType


@dataclass(frozen=True, slots=True)
class ENode:
    """One way to compute a class: an op on classes.

    Besides the registry's ops there are ``input`` (attribute ``index``: which input of the region) and ``result``
    (attribute ``index``: which result of its only child, a class of tuples). ``rules`` names the rule that first made
    the node; it is empty for nodes of the program itself.
    """

    op: str
    attributes: Attributes
    regions: tuple[Region, ...]
    children: tuple[int, ...]
    rules: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The op's name, as an op of a program calls it."""
        return self.op


@dataclass(slots=True)
class EClass:
    """Nodes that compute the same value: one tensor of ``types[0]``, or all results of a multi-result op."""

    types: tuple[TensorType, ...]
    nodes: list[ENode] = field(default_factory=list)
    is_tuple: bool = False

    @property
    def type(self) -> TensorType:
        """The tensor's type; of a class of tuples the first result's."""
        return self.types[0]


@dataclass(frozen=True)
class RunReport:
    """What saturation did, and why it stopped.

    stop: ``saturated`` (nothing new is derivable), ``iterations``, ``rows``, ``seconds``, or ``worker: <reason>`` when
    the engine's process failed and the graph holds the program alone. rows: e-nodes at the end. matches: per rule, how
    often its left side was found where its condition holds. notes: messages of failures met on the way. late: the
    clock ended it, or killed a call of the engine.
    """

    stop: str = "saturated"
    iterations: int = 0
    rows: int = 0
    seconds: float = 0.0
    matches: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    late: bool = False


@dataclass
class EGraph:
    """Classes of equal values, the class of each value of the program, and those of its ops with effects in order."""

    classes: list[EClass]
    values: list[int]
    report: RunReport = field(default_factory=RunReport)
    effects: list[int] = field(default_factory=list)

    def type_of(self, cls: int) -> TensorType:
        """The tensor type of a class."""
        return self.classes[cls].types[0]

    @property
    def size(self) -> int:
        """The number of e-nodes."""
        return sum(len(c.nodes) for c in self.classes)
