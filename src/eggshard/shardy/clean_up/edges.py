"""The pass that sinks data-flow edges: shardings of edges move to the loop, branch or body that the edge belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlib.mlir import ir

from eggshard.planner.propagation.flows import with_manual
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.attributes import per_value_text, read_per_value
from eggshard.shardy.edges import EDGE, FUNCTION_EDGE, edge_of
from eggshard.shardy.module import BODIES, DATA_FLOW, SHARDING, ShardyModule, manual_axes, rank
from eggshard.shardy.passes import shardy_pass
from eggshard.shardy.propagation.origins import ARGUMENT_ORIGINS, EDGES, ORIGINS, RESULT_ORIGINS

MANUAL = "sdy.manual_computation"
#: Edges of the block arguments and the results of an op whose data-flow edges have been removed.
ARGUMENT_EDGES, RESULT_EDGES = "sdy.block_arg_propagation_edges", "sdy.result_propagation_edges"


@shardy_pass("sink-data-flow-edges", on="func.func")
def sink_data_flow_edges(
    module: ShardyModule,
    sink_debug_sharding_origins: bool = False,
    sink_debug_propagation_edge_sharding: bool = False,
) -> None:
    """Move the sharding of every data-flow edge to the value it is of, and remove the edge.

    A while loop, branch or optimization barrier states the shardings of its results, a manual or named computation
    those of its block's arguments too. Values without an edge, or whose edge has no sharding, are open where another
    one has some.

    sink-debug-sharding-origins: the op gets the edges' ``sdy.sharding_origins``, one entry per value.
    sink-debug-propagation-edge-sharding: and the edges' ``sdy.propagation_edges``, of the values that have any.
    """
    wanted = (sink_debug_sharding_origins, sink_debug_propagation_edge_sharding)
    for function in module.functions:
        for op in module.walk(*DATA_FLOW, *BODIES, root=function):
            _sink(op, wanted)
        for edge in module.walk(EDGE, root=function):
            edge.results[0].replace_all_uses_with(edge.operands[0])
            edge.erase()


@shardy_pass("sink-func-data-flow-edges", on="func.func")
def sink_func_data_flow_edges(module: ShardyModule) -> None:
    """Move the sharding of every function data-flow edge to the argument or call result it is of; remove the edge.

    Where an edge has no sharding, a value that states one becomes fully open.
    """
    for function in module.functions:
        for edge in module.walk(FUNCTION_EDGE, root=function):
            value, found = edge.operands[0], module.sharding(edge.results[0])
            before = module.sharding(value)
            if found or before:
                module.set_sharding(value, found or TensorSharding.fully_open(before.mesh, rank(value)))  # type: ignore[union-attr]
            edge.results[0].replace_all_uses_with(value)
            edge.erase()


def _sink(op: Any, wanted: tuple[bool, bool]) -> None:
    results = [edge_of(value) for value in op.results]
    arguments = [edge_of(value) for value in op.regions[0].blocks[0].arguments] if op.name in BODIES else []
    _set(op, "in_shardings", op.operands if arguments else (), arguments)
    _note(op, arguments, wanted, ARGUMENT_ORIGINS, ARGUMENT_EDGES)
    _set(op, "out_shardings" if op.name in BODIES else SHARDING, op.results, results)
    _note(op, results, wanted, RESULT_ORIGINS, RESULT_EDGES)


def _set(op: Any, attribute: str, values: Sequence[Any], edges: Sequence[Any]) -> None:
    """State the shardings of values by their edges, if one has any. Those of arguments are without manual axes."""
    found = [
        TensorSharding.parse(str(edge.attributes["sharding"])) if edge and "sharding" in edge.attributes else None
        for edge in edges
    ]
    mesh = next((s.mesh for s in found if s), None)
    if mesh is None:
        return
    shardings = [s or TensorSharding.fully_open(mesh, rank(v)) for s, v in zip(found, values, strict=True)]
    if op.name == MANUAL:
        stated = read_per_value(str(op.attributes[attribute]))
        shardings = [
            free if known and attribute == "out_shardings" else
            TensorSharding(free.mesh, with_manual(s.sharding, free.sharding, manual_axes(op)))
            for s, free, known in zip(stated, shardings, found, strict=True)
        ]
    op.attributes[attribute] = ir.Attribute.parse(per_value_text(shardings))


def _note(op: Any, edges: Sequence[Any], wanted: tuple[bool, bool], origins: str, steps: str) -> None:
    """Put what edges have noted on the op: origins one entry per edge if there are any, steps where there are."""
    present = [edge.attributes for edge in edges if edge]
    if wanted[0]:
        noted = [a[ORIGINS] if ORIGINS in a else ir.DictAttr.get({}) for a in present]
        op.attributes[origins] = ir.ArrayAttr.get(noted if any(map(len, noted)) else [])
    if wanted[1]:
        found = [a[EDGES] for a in present if EDGES in a]
        op.attributes[steps] = ir.ArrayAttr.get(found)
