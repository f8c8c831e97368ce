"""Plans as graphs, for networkx and in Graphviz's text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import networkx

from eggshard.plan.naming import output_names, value_names
from eggshard.report.tables import over, what

if TYPE_CHECKING:
    from eggshard.plan.record import PlanRecord


def to_networkx(plan: PlanRecord) -> networkx.DiGraph:
    """Nodes ``("input", i)``, ``("step", i)``, ``("output", i)``; an edge for every value that passes between them.

    Nodes have ``label``, with the names of inputs and outputs, and ``kind`` ("input", "local", "collective", "output");
    steps also ``seconds``, ``bytes``
    (received by the busiest device) and ``why``. Edges have ``values``, and ``bytes`` per device.
    """
    graph = networkx.DiGraph(name=plan.program.name, mesh=dict(plan.mesh.axes))
    program = plan.device_program
    made: dict[int, tuple[str, int]] = {}
    names, ends = value_names(plan), output_names(plan)
    for i, v in enumerate(program.inputs):
        made[v] = ("input", i)
        graph.add_node(made[v], kind="input", label=f"input {names[v]} {plan.input_placements[i]}")
    for i, step in enumerate(plan.steps):
        axes = over(step.action)
        graph.add_node(
            ("step", i), kind="collective" if step.action.messages else "local", seconds=plan.prices[i],
            bytes=float(plan.received[i].max()), why=step.why,
            label=what(step.action) + (f" over {axes}" if axes else ""))
        for v in step.operands:
            _connect(graph, plan, made[v], ("step", i), v)
        made.update((v, ("step", i)) for v in step.results)
    for i, v in enumerate(program.outputs):
        graph.add_node(("output", i), kind="output", label=f"output {ends[i]} {plan.output_placements[i]}")
        _connect(graph, plan, made[v], ("output", i), v)
    return graph


def _connect(
    graph: networkx.DiGraph, plan: PlanRecord, source: tuple[str, int], target: tuple[str, int], v: int
) -> None:
    if not graph.has_edge(source, target):
        graph.add_edge(source, target, values=(), bytes=0)
    edge = graph.edges[source, target]
    if v not in edge["values"]:
        edge["values"] += (v,)
        edge["bytes"] += plan.device_program.types[v].bytes


def to_dot(plan: PlanRecord) -> str:
    """Return the plan's graph as Graphviz text: collectives are filled boxes, edges are labelled with their shards."""
    graph, types = to_networkx(plan), plan.device_program.types
    name = {node: f"{node[0]}{node[1]}" for node in graph}
    lines = [f"digraph {_quoted(plan.program.name)} {{", '  rankdir=TB; node [shape=box, fontname="sans-serif"];']
    for node, data in graph.nodes(data=True):
        label = data["label"] + (f"\n{plan.unit.text(data['seconds'])}" if "seconds" in data else "")
        style = {"collective": ', style=filled, fillcolor="#f6c667"', "local": ""}.get(data["kind"], ", shape=ellipse")
        lines.append(f"  {name[node]} [label={_quoted(label)}{style}];")
    for source, target, data in graph.edges(data=True):
        label = ", ".join(str(types[v]) for v in data["values"])
        lines.append(f"  {name[source]} -> {name[target]} [label={_quoted(label)}];")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
