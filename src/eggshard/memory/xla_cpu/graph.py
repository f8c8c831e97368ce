"""The memory graph of one block of a lowered device program: what each value is to fusion and to buffers."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from eggshard.memory.xla_cpu.packing import Lives


class Kind(Enum):
    """What a node does with memory."""

    INPUT = "input"
    #: Shares its operand's buffer.
    VIEW = "view"
    #: May be computed where it is used.
    LOOP = "loop"
    #: A concatenation along a major dimension: a loop that is not computed twice.
    JOIN = "join"
    #: A reduction: takes in the loops that feed it.
    SUM = "sum"
    #: Overwrites a part of its first operand, in place where nothing needs that any more.
    UPDATE = "update"
    #: A product, a collective, a library call: reads buffers and writes one.
    CALL = "call"


@dataclass
class Node:
    """A value. ``bytes`` is 0 for what takes no memory.

    elementwise: a loop whose elements need their operands' at the same place; a view of the same shape. expensive: not
    worth computing twice. spread: a broadcast of something smaller. vectorised: what a library of vector kernels can
    do. pieces: how many buffers it is, each computed on its own.
    """

    kind: Kind
    operands: tuple[int, ...] = ()
    bytes: int = 0
    name: str = ""
    elementwise: bool = False
    expensive: bool = False
    spread: bool = False
    vectorised: bool = False
    pieces: int = 1


@dataclass
class Graph:
    """Nodes by number, operands first.

    relaid: inputs, by position, that a loop needs in another layout. inside: what nodes that are loops or branches do.
    """

    nodes: list[Node] = field(default_factory=list)
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    relaid: set[int] = field(default_factory=set)
    inside: dict[int, Lives] = field(default_factory=dict)

    def add(self, node: Node) -> int:
        """Append a node and return its number."""
        self.nodes.append(node)
        return len(self.nodes) - 1

    def base(self, n: int) -> int:
        """The node whose buffer a view shares; the node itself, where it is none."""
        while self.nodes[n].kind is Kind.VIEW and self.nodes[n].operands:
            n = self.nodes[n].operands[0]
        return n

    def reshaped(self, n: int) -> bool:
        """Whether a node is its base in another shape."""
        while self.nodes[n].kind is Kind.VIEW and self.nodes[n].operands:
            if not self.nodes[n].elementwise:
                return True
            n = self.nodes[n].operands[0]
        return False

    def reads(self, n: int) -> tuple[int, ...]:
        """The different nodes behind the operands of a node."""
        return tuple(dict.fromkeys(self.base(o) for o in self.nodes[n].operands))

    def waits(self) -> list[int]:
        """Per node, as bits, the nodes that it waits for."""
        found: dict[int, int] = {}
        for n in range(len(self.nodes)):
            stack = [n]  # operands come first but for those of combined nodes
            while stack:
                here = stack[-1]
                missing = [o for o in self.nodes[here].operands if o not in found]
                if missing and here not in found:
                    stack += missing
                    continue
                stack.pop()
                if here not in found:
                    found[here] = 0
                    for o in self.nodes[here].operands:
                        found[here] |= found[o] | 1 << o
        return [found[n] for n in range(len(self.nodes))]

    def users(self) -> list[list[int]]:
        """Per node those that read it, views looked through; of nodes that some output needs."""
        live = {self.base(o) for o in self.outputs}
        for n in range(len(self.nodes) - 1, -1, -1):
            if n in live:
                live.update(self.reads(n))
        found: list[list[int]] = [[] for _ in self.nodes]
        for n in sorted(live):
            if self.nodes[n].kind is not Kind.VIEW:
                for o in self.reads(n):
                    found[o].append(n)
        return found
