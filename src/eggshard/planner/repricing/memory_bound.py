"""A lower bound on the memory of every plan of a selection problem: what it holds at one moment.

Products and collectives read and write whole buffers. So at some moment a plan holds, besides its inputs, the largest
of what its products need (operands that are no inputs, and the result), and of the shards that its collectives send
and receive. The least such maximum over all derivations of the results is a bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from eggshard.egraph.graph import EGraph
from eggshard.planner.derivation import derived, least_values
from eggshard.planner.encoding.encode import Computed, Encoding, Shard
from eggshard.program.placement import Placement
from eggshard.program.types import element_bytes
from eggshard.selection.problem import Choice

_PRODUCTS = ("dot_general", "convolution")
#: Reductions may take in the products that feed them, whose results are then never whole.
_REDUCTIONS = ("reduce", "reduce_window")
_VIEWS = ("reshape", "transpose")


def least_held(graph: EGraph, encoding: Encoding) -> int:
    """Bytes besides the inputs that every plan among the candidates holds at once; 0 where nothing can be said."""
    return Held(graph, encoding).least()


class Held:
    """What the choices and conversions of a problem hold whole, in bytes besides the inputs."""

    def __init__(self, graph: EGraph, encoding: Encoding):
        self.graph, self.encoding = graph, encoding
        self.problem = encoding.problem
        self.reduces = any(node.op in _REDUCTIONS for c in graph.classes for node in c.nodes)
        self.inputs = self._inputs()

    def least(self) -> int:
        """The least that a plan holds at once; 0 where nothing can be said."""
        settled = least_values(
            self.problem, lambda c, choice, held: max(held, self._computing((c, choice.out), choice)), self._converted)
        found = max((settled.get(root, math.inf) for root in self.problem.roots), default=0.0)
        return int(found) if math.isfinite(found) else 0

    def written(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Bytes of what products make, per class and choice, and of what collectives make, ``[P, P]`` per class."""
        made = [np.array([float(self._product((c, x.out), x)) for x in choices])
                for c, choices in enumerate(self.problem.choices)]
        received = []
        for c, conversions in enumerate(self.problem.conversions):
            found = np.zeros(conversions.shape)
            for p, q in zip(*np.nonzero(np.isfinite(conversions)), strict=True):
                found[p, q] = self._bytes((c, q)) if self._converting((c, p), (c, q)) else 0.0
            received.append(found)
        return made, received

    def _converted(self, shard: Shard, held: float) -> Iterator[tuple[int, float]]:
        for q in np.flatnonzero(np.isfinite(self.problem.conversions[shard[0]][shard[1]])).tolist():
            yield q, max(held, self._converting(shard, (shard[0], q)))

    def _inputs(self) -> set[Shard]:
        """Shards that are the program's inputs, or views of them."""
        return derived(
            ((c, choice.out), () if self._op(choice.tag) == "input" else choice.needs)
            for c, choices in enumerate(self.problem.choices) for choice in choices
            if isinstance(choice.tag, Computed) and self._op(choice.tag) in ("input", *_VIEWS)
        )[0]

    def _op(self, tag: Computed) -> str:
        return self.graph.classes[tag.cls].nodes[tag.node].op

    def _bytes(self, shard: Shard) -> int:
        """What a shard takes besides the inputs; 0 of tuples, and of windows, whose exchanges need not be whole."""
        placement = self._placement(shard)
        if shard in self.inputs or placement is None:
            return 0
        return math.prod(placement.local_shape) * element_bytes(self.graph.type_of(shard[0]).dtype)

    def _placement(self, shard: Shard) -> Placement | None:
        c, p = shard
        if c >= len(self.graph.classes):
            return None
        placement = self.encoding.placements[c][p]
        return placement if isinstance(placement, Placement) and not placement.windowed else None

    def _converting(self, source: Shard, target: Shard) -> float:
        """What a conversion holds, if it is more than a local slice."""
        before, after = self._placement(source), self._placement(target)
        if before is None or after is None or before == after:
            return 0.0
        reduces = set(before.partial) - set(after.partial)
        smaller = math.prod(after.local_shape) < math.prod(before.local_shape)
        keeps = before.dims == after.dims or bool(set(after.partial) - set(before.partial))
        if not reduces and (smaller or keeps):
            return 0.0
        return max(self._bytes(source), self._bytes(target))

    def _computing(self, made: Shard, choice: Choice) -> float:
        """What a product holds; loops need not hold anything whole."""
        tag = choice.tag
        if not isinstance(tag, Computed) or self._op(tag) not in _PRODUCTS or tag.strategy.positional:
            return 0.0
        result = 0 if self.reduces else self._bytes(made)
        return result + sum(self._bytes(need) for need in choice.needs)

    def _product(self, made: Shard, choice: Choice) -> int:
        """Bytes of a product's result; 0 of other ops, whose results need not be written."""
        tag = choice.tag
        return self._bytes(made) if isinstance(tag, Computed) and self._op(tag) in _PRODUCTS else 0
