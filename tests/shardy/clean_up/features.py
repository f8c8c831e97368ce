"""What random modules each clean-up pass is compared on: keywords of `random_module`, one entry per kind of module."""

from __future__ import annotations

from typing import Any

REGIONS = ("while", "case", "barrier", "manual", "named")
ALL: dict[str, Any] = dict(
    regions=REGIONS, constants=True, constraints=True, groups=True, reshards=True, sub_axes=True, replicated=True,
    priorities=0.3, scalars=True, functions=1, calls=True,
)  # fmt: skip
ODD: dict[str, Any] = dict(uneven=True, empty=True, unreduced=True, meshes=2, tokens=True, calls=False)

FEATURES: dict[str, list[dict[str, Any]]] = {
    # jaxlib leaves priorities at dimensions that close empty, and then refuses its own result.
    "close-shardings": [
        ALL | dict(priorities=0, edges=True, meshes=2, size_one_axes=True),
        ALL | dict(priorities=0, inlined_meshes=True, unreduced=True, uneven=True, empty=True),
    ],
    "constant-or-scalar-merger": [
        dict(regions=REGIONS, constants=True, stated=0.3, sharded=0.2, length=14, mesh={"x": 2}),
        dict(regions=REGIONS, constants=True, sdy_constants=True, stated=0.2, scalars=True, functions=1),
    ],
    "remove-sharding-groups": [ALL],
    "sharding-constraint-to-reshard": [ALL],
    "sink-data-flow-edges": [ALL | dict(edges=True), ALL | ODD | dict(edges=True)],
    # Where an edge has no note, jaxlib moves those of later values forward.
    "sink-data-flow-edges{sink-debug-sharding-origins=true sink-debug-propagation-edge-sharding=true}": [
        ALL | dict(edges=True, notes=1.0)
    ],
    "sink-data-flow-edges{sink-debug-propagation-edge-sharding=true}": [ALL | dict(edges=True, notes=0.5)],
    "sink-func-data-flow-edges": [dict(function_edges=True, functions=2, calls=True, replicated=True, priorities=0.3)],
    "update-non-divisible-input-output-shardings": [ALL | dict(uneven=True), ALL | ODD],
    "remove-sub-axes-in-input-output-shardings": [
        dict(mesh={"x": 8}, sub_axes=True, open=0.8, priorities=0.3, stated=0.9, functions=1),
        dict(mesh={"x": 4, "y": 4}, sub_axes=True, open=0.8, stated=0.9, main="only", replicated=True, uneven=True),
    ],
    "propagate-to-func-results": [ALL | dict(functions=3)],
    "drop-sharding-and-mesh": [
        dict(sub_axes=True, replicated=True, regions=("while", "case", "barrier"), functions=2, calls=True)
    ],
    "remove-propagation-debug-info": [ALL | dict(edges=True, notes=0.5)],
    # jaxlib does not join the parts of an axis that one of size one stood between.
    "remove-size-one-axes": [ALL | dict(size_one_axes=True, unreduced=True, sub_axes=False)],
    "inline-meshes": [ALL | dict(meshes=2, functions=2)],
    "lift-inlined-meshes": [ALL | dict(meshes=3, inlined_meshes=True, functions=3), ALL | dict(meshes=2, functions=2)],
}
