"""Plans as graphs for Model Explorer: a graph for the plan, and one for each body of its loops and branches."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eggshard.costmodel.pricing import Pricer
from eggshard.plan.naming import output_names, value_names
from eggshard.report.tables import over, what
from eggshard.report.words import sentences
from eggshard.steps.nested import Place
from eggshard.tables import size

if TYPE_CHECKING:
    from eggshard.plan.record import PlanRecord
    from eggshard.steps.steps import StepPlan

#: The colour of collectives.
_COMMUNICATES = "#f6c667"


def write_model_explorer(plan: PlanRecord, path: str | Path) -> Path:
    """Write a plan's graphs; see `Plan.to_model_explorer`."""
    path = Path(path)
    path.write_text(json.dumps(graphs(plan), separators=(",", ":")))
    return path


def graphs(plan: PlanRecord) -> list[dict[str, Any]]:
    """The graphs, the plan's own first. Their names are the addresses of the bodies: ``3.body``."""
    return [_graph(plan, place) for place in _places(Place(plan.device_program))]


def _places(place: Place) -> Iterator[Place]:
    yield place
    for number in range(len(place.program.steps)):
        for inner in place.within(number):
            yield from _places(inner)


def _graph(plan: PlanRecord, place: Place) -> dict[str, Any]:
    program, names = place.program, value_names(plan, place.program)
    source: dict[int, tuple[str, int]] = {}  # of each value, the node that makes it and which of its results it is
    nodes = []
    for i, v in enumerate(program.inputs):
        source[v] = f"input {i}", 0
        nodes.append(_node(f"input {i}", names[v], {}, (), [_shown(program, names, v)]))
    price = Pricer(plan.cost_model, plan.mesh)
    for i, step in enumerate(program.steps):
        received = float(program.received(step).max()) if step.action.messages else 0.0
        said = {
            "step": place.address_of(i), "over": over(step.action), "received": size(received) if received else "",
            plan.unit.header: plan.unit.text(price(step.action, *(program.types[v] for v in step.operands))),
            "why": sentences(step.why), "times": str(place.times) if place.outer else "",
        }
        edges = [source[v] for v in step.operands]
        node = _node(f"step {i}", what(step.action), said, edges, [_shown(program, names, v) for v in step.results])
        if step.action.messages:
            node["style"] = {"backgroundColor": _COMMUNICATES}
        if inside := place.within(i):
            node["subgraphIds"] = [inner.address for inner in inside]
        nodes.append(node)
        source.update((v, (f"step {i}", k)) for k, v in enumerate(step.results))
    outputs = output_names(plan) if place.outer is None else [str(i) for i in range(len(program.outputs))]
    nodes += [_node(f"output {i}", name, {}, [source[v]], []) for i, (name, v) in enumerate(
        zip(outputs, program.outputs, strict=True))]
    return {"id": place.address or plan.program.name, "nodes": nodes}


def _shown(program: StepPlan, names: list[str], v: int) -> Mapping[str, str]:
    """What is said of a value: its name, the part that a device holds, and where the tensor lies."""
    held = program.held[v] if v < len(program.held) else None
    placed = {"tensor": str(held.type), "placement": str(held.placement)} if held is not None else {}
    return {"name": names[v], "tensor_shape": str(program.types[v]), **placed}


def _node(
    id_: str, label: str, said: Mapping[str, str], operands: Iterable[tuple[str, int]],
    results: list[Mapping[str, str]],
) -> dict[str, Any]:
    return {
        "id": id_, "label": label, "namespace": "", "attrs": _pairs(said),
        "incomingEdges": [
            {"sourceNodeId": node, "sourceNodeOutputId": str(k), "targetNodeInputId": str(i)}
            for i, (node, k) in enumerate(operands)],
        "outputsMetadata": [{"id": str(k), "attrs": _pairs(each)} for k, each in enumerate(results)],
    }


def _pairs(said: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in said.items() if value]
