from __future__ import annotations

import networkx
from tests.report.samples import mlp


def test_networkx_has_every_step_and_value() -> None:
    plan = mlp()
    graph = plan.to_networkx()
    assert networkx.is_directed_acyclic_graph(graph)
    assert sum(node[0] == "step" for node in graph) == len(plan.steps)
    assert sum(data["seconds"] for _, data in graph.nodes(data=True) if "seconds" in data) == plan.cost.total
    reduced = [node for node, data in graph.nodes(data=True) if data["kind"] == "collective"]
    assert reduced == [("step", 3)] and graph.nodes["step", 3]["bytes"] == plan.wire_bytes
    assert list(graph.successors(("step", 3))) == [("output", 0)]
    assert graph.edges[("step", 2), ("step", 3)]["bytes"] == plan.device_program.types[5].bytes


def test_dot_is_balanced_and_names_what_there_is() -> None:
    text = mlp().to_dot()
    assert text.startswith('digraph "mlp" {') and text.endswith("}\n")
    assert text.count("->") == mlp().to_networkx().number_of_edges()
    assert "step2 -> step3" in text and "all-reduce over y" in text
    assert 'input0 [label="input arg0 (x, -)"' in text and "output result0 (x, -)" in text


def test_a_notebook_shows_the_table() -> None:
    shown = mlp()._repr_html_()
    assert shown.count("<tr>") == len(mlp().steps) + 1 and "all-reduce" in shown
    assert "&lt;" not in shown or "<script" not in shown
