"""What a search may spend. Every limit ends in a valid plan."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Limits:
    """Limits of `optimize`.

    seconds: for the whole search (it stops soon after, with the best plan so far). rows, iterations: of the e-graph.
    strategies: per op. placements: candidate placements per e-class. permutes: collective-permutes that one reshard
    by pieces may issue. memory_mib: of the worker process. gap: extraction stops at this certified relative gap.
    seconds_per_node: what extraction may take per e-node, so that planning stays in proportion to compiling; raise it
    for a tighter certificate.
    """

    seconds: float = 60.0
    rows: int = 50_000
    iterations: int = 8
    strategies: int = 512
    placements: int = 64
    permutes: int = 16
    memory_mib: int = 8192
    gap: float = 1e-4
    seconds_per_node: float = 0.008

    def doubled(self) -> Limits:
        """The same with every cap on candidates doubled (to see whether the caps cost anything)."""
        caps = ("rows", "iterations", "strategies", "placements", "permutes")
        return replace(self, **{cap: 2 * getattr(self, cap) for cap in caps})
