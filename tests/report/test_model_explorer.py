"""Graphs for Model Explorer: every edge comes from a node that is there, and bodies are graphs of their own."""

import json
from pathlib import Path

import pytest
from tests.report.samples import mlp

import eggshard as es
from eggshard.report.model_explorer import graphs

LOOP = """
sdy.mesh @mesh = <["x"=4]>
func.func @rolled(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
    -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %v = %a) : tensor<i32>, tensor<8x8xf32>
  cond {
    %n = stablehlo.constant dense<3> : tensor<i32>
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %one : tensor<i32>
    %w = stablehlo.dot_general %v, %v, contracting_dims = [1] x [0]
        : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    stablehlo.return %j, %w : tensor<i32>, tensor<8x8xf32>
  }
  return %0#1 : tensor<8x8xf32>
}"""


@pytest.mark.parametrize("made", [mlp, lambda: es.optimize(LOOP, cost_model="h100-node")], ids=["mlp", "loop"])
def test_graphs_are_whole(made, tmp_path: Path) -> None:
    plan = made()
    found = graphs(plan)
    assert json.loads(plan.to_model_explorer(tmp_path / "plan.json").read_text()) == found
    ids = [graph["id"] for graph in found]
    assert ids[0] == plan.program.name and len(set(ids)) == len(ids)
    for graph in found:
        results = {node["id"]: len(node["outputsMetadata"]) for node in graph["nodes"]}
        assert len(results) == len(graph["nodes"])
        for node in graph["nodes"]:
            assert all(inner in ids for inner in node.get("subgraphIds", ()))
            for edge in node["incomingEdges"]:
                assert int(edge["sourceNodeOutputId"]) < results[edge["sourceNodeId"]]
    assert sum(node["id"].startswith("step") for node in found[0]["nodes"]) == len(plan.steps)


def test_what_is_said_of_steps() -> None:
    (graph,) = graphs(mlp())
    (collective,) = [node for node in graph["nodes"] if "style" in node]
    said = {pair["key"]: pair["value"] for pair in collective["attrs"]}
    assert collective["label"] == "all-reduce" and said["over"] == "y" and "received" in said
    assert {"tensor_shape", "placement"} <= {pair["key"] for pair in collective["outputsMetadata"][0]["attrs"]}


def test_bodies_are_reached() -> None:
    found = graphs(es.optimize(LOOP, cost_model="h100-node"))
    assert {inner for graph in found for node in graph["nodes"] for inner in node.get("subgraphIds", ())} == {
        graph["id"] for graph in found[1:]} != set()
