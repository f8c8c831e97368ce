"""Edge colouring of bipartite multigraphs with as many colours as the degree (König); colours are message rounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def colour_edges(senders: Sequence[int] | np.ndarray, receivers: Sequence[int] | np.ndarray, nodes: int) -> np.ndarray:
    """``[edges]``: colours such that no two edges of a sender, or of a receiver, share one; as few as the degree.

    Parts of the graph that are not connected are coloured each on its own, and equal ones once: what is done along
    some mesh axes is often done alike at all positions along the others.
    """
    out = np.zeros(len(senders), int)
    ends = np.asarray(senders, int), np.asarray(receivers, int)
    part = _parts(*ends, nodes)
    own = [_ranks(part, end) for end in ends]
    order = np.argsort(part, kind="stable")
    sizes = np.unique(part, return_counts=True)[1]
    starts = np.cumsum(sizes) - sizes
    for size in np.unique(sizes).tolist():
        edges = order[starts[sizes == size][:, None] + np.arange(size)]
        graphs, number = np.unique(np.hstack([rows[edges] for rows in own]), axis=0, return_inverse=True)
        colours = [_coloured(graph[:size].tolist(), graph[size:].tolist()) for graph in graphs]
        out[edges] = np.array(colours)[number.reshape(-1)]
    return out



def _parts(senders: np.ndarray, receivers: np.ndarray, nodes: int) -> np.ndarray:
    """``[edges]``: a number for the connected part of a bipartite graph that an edge is of."""
    label: np.ndarray = np.arange(nodes)  # of senders: the least one known to be connected
    while True:
        by_receiver = np.full(nodes, nodes)
        np.minimum.at(by_receiver, receivers, label[senders])
        lower = label.copy()
        np.minimum.at(lower, senders, by_receiver[receivers])
        lower = lower[lower]
        if (lower == label).all():
            out: np.ndarray = label[senders]
            return out
        label = lower



def _ranks(part: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """``[edges]``: the edge's end, numbered from 0 in the order of the ends of its part."""
    order = np.lexsort([ends, part])
    part, ends = part[order], ends[order]
    fresh = np.concatenate([[True], (np.diff(part) != 0) | (np.diff(ends) != 0)])[: len(part)]
    number = np.cumsum(fresh)
    out = np.empty(len(part), int)
    out[order] = number - number[np.searchsorted(part, part)]
    return out



def _coloured(senders: list[int], receivers: list[int]) -> np.ndarray:
    """Colour the edges of one connected component, whose senders and receivers are numbered from 0.

    This uses alternating paths: where the colour free at the sender is taken at the receiver, the two colours are
    swapped along the path that starts there; it cannot return to the sender, because the graph is bipartite.
    """
    edges, nodes = len(senders), max(senders) + 1
    degree = int(max(np.bincount(senders).max(), np.bincount(receivers).max()))
    # Senders are nodes 0..n-1, receivers those from n on; at[node][colour] is the edge of that colour, or -1.
    ends = [(s, nodes + r) for s, r in zip(senders, receivers, strict=True)]
    at = [[-1] * degree for _ in range(nodes + max(receivers) + 1)]
    colours = [-1] * edges
    for edge, (u, v) in enumerate(ends):
        free_u, free_v = at[u].index(-1), at[v].index(-1)
        if free_u != free_v and at[v][free_u] >= 0:
            path, node, colour, other = [], v, free_u, free_v
            while (step := at[node][colour]) >= 0:
                path.append(step)
                a, b = ends[step]
                node, colour, other = (b if node == a else a), other, colour
            for step in path:
                for end in ends[step]:
                    at[end][colours[step]] = -1
            for step in path:
                colours[step] = free_v if colours[step] == free_u else free_u
            for step in path:
                for end in ends[step]:
                    at[end][colours[step]] = step
        colours[edge] = free_u
        at[u][free_u] = at[v][free_u] = edge
    return np.array(colours)
