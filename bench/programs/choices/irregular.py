"""Programs whose accesses depend on data: graphs, and particles."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import PartitionSpec as P

from bench.programs.choices.definition import ALL, Open, Sizes, f32, i32


def graph_layer(nodes: Array, senders: Array, receivers: Array, message: Array, update: Array) -> Array:
    """Messages along edges, their sums at the nodes, and an update (as in jraph)."""
    along = jax.nn.relu(nodes[senders] @ message)
    summed = jax.ops.segment_sum(along, receivers, nodes.shape[0])
    return nodes + jax.nn.relu(jnp.concatenate([nodes, summed], -1) @ update)


def graph_convolution(nodes: Array, senders: Array, receivers: Array) -> Array:
    """Features of neighbours added up."""
    return jax.ops.segment_sum(nodes[senders], receivers, nodes.shape[0])


def accelerations(positions: Array, masses: Array) -> Array:
    """Every particle's attraction by all others."""
    apart = positions[None] - positions[:, None]
    distance = (apart**2).sum(-1) + 1e-3
    return jnp.einsum("j,ij,ijd->id", masses, distance**-1.5, apart)


def programs(sizes: Sizes) -> list[Open]:
    """The functions at these sizes."""
    count, d = 4 * sizes.batch, sizes.width // 4
    nodes, edges, n = f32(count, d), i32(8 * count), sizes.side
    return [
        Open("graph network", graph_layer, (nodes, edges, edges, f32(d, d), f32(2 * d, d)),
             {"edges": (P(), P(ALL), P(ALL), P(), P()), "features": (P(None, ALL), P(), P(), P(), P()),
              "nodes + edges": (P("x"), P(ALL), P(ALL), P(), P())}, {0: 0}, False),
        Open("graph convolution", graph_convolution, (nodes, edges, edges),
             {"edges": (P(), P(ALL), P(ALL)), "features": (P(None, ALL), P(), P()), "nodes": (P(ALL), P(), P())},
             {0: 0}),
        Open("particles", accelerations, (f32(n, 3), f32(n)),
             {"rows": (P(ALL), P()), "tiles": (P("x"), P("y")), "sources": (P(), P(ALL))}),
    ]
