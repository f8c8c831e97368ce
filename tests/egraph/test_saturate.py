"""Saturation ends in a valid e-graph, whatever happens, and the same one every time."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("egglog")

from eggshard import worker
from eggshard.egraph import saturate as saturation
from eggshard.egraph.saturate import saturate  # noqa: E402
from eggshard.errors import RewriteError  # noqa: E402
from eggshard.limits import Limits  # noqa: E402
from eggshard.ops import registry  # noqa: E402
from eggshard.ops.region_builder import RegionBuilder  # noqa: E402
from eggshard.program.types import TensorType  # noqa: E402
from eggshard.rewrites import default_rules, each, rule, select, tensors  # noqa: E402

F = "f32"


def chain(depth=6):
    """Transposes and pointwise ops in turns."""
    builder = RegionBuilder([TensorType((4, 8), F)])
    v = 0
    for _ in range(depth):
        (v,) = builder.add("transpose", (v,), {"permutation": (1, 0)})
        (v,) = builder.add("tanh", (v,))
        (v,) = builder.add("negate", (v,))
    return builder.build([v])


def shape_of(graph):
    """Everything that a graph says, to compare two."""
    return [
        (c.types, c.is_tuple, [(n.op, dict(n.attributes), n.children, n.rules) for n in c.nodes]) for c in graph.classes
    ], graph.values


def check_valid(graph, region):
    """Every class has a node and every child exists; the program's nodes are all there; the classes are derivable."""
    assert len(graph.values) == len(region.types)
    for cls in graph.classes:
        assert cls.nodes and cls.types is not None
        assert all(0 <= child < len(graph.classes) for node in cls.nodes for child in node.children)
    assert [graph.type_of(c) for c in graph.values] == list(region.types)
    derived: set[int] = set()
    while True:
        new = {c for c, cls in enumerate(graph.classes) if any(set(n.children) <= derived for n in cls.nodes)}
        if new == derived:
            break
        derived = new
    assert derived == set(range(len(graph.classes)))


RULES = select(default_rules())


def test_a_program_saturates_and_names_the_rules_that_made_each_node():
    region = chain()
    graph = saturate(region, RULES, Limits(iterations=30))
    check_valid(graph, region)
    assert graph.report.stop == "saturated"
    assert graph.report.matches["transpose of transpose"] > 0
    assert any("unary of transpose" in n.rules for c in graph.classes for n in c.nodes)
    names = {n.op for n in graph.classes[graph.values[region.outputs[0]]].nodes}
    assert "negate" in names
    # All six transposes cancel: tanh of the input itself is there.
    (source,) = [c for c, cls in enumerate(graph.classes) if cls.nodes[0].op == "input"]
    assert any(n.op == "tanh" and n.children == (source,) for c in graph.classes for n in c.nodes)


@pytest.mark.parametrize(
    ("limits", "stop"),
    [
        (Limits(iterations=1), "iterations"),
        (Limits(iterations=0), "iterations"),
        (Limits(rows=25), "rows"),
        (Limits(rows=1), "rows"),
        (Limits(seconds=1e-6), "seconds"),
    ],
)
def test_every_limit_ends_in_a_valid_graph(limits, stop):
    region = chain()
    graph = saturate(region, RULES, limits)
    check_valid(graph, region)
    assert graph.report.stop == stop


def test_without_rules_equal_nodes_are_still_one():
    builder = RegionBuilder([TensorType((4,), F)])
    (a,), (b,) = builder.add("negate", (0,)), builder.add("negate", (0,))
    region = builder.build(builder.add("add", (a, b)))
    for rules in ([], RULES):
        graph = saturate(region, rules)
        check_valid(graph, region)
        assert graph.values[a] == graph.values[b]
        assert len(graph.classes) == 3


def test_the_same_program_gives_the_same_graph_whatever_ran_before():
    region = chain()
    first = shape_of(saturate(region, RULES))
    saturate(chain(3), RULES)
    assert shape_of(saturate(region, RULES)) == first
    worker.worker().close()
    assert shape_of(saturate(region, RULES)) == first


def test_the_graph_does_not_depend_on_hash_seeds():
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from eggshard.egraph.saturate import saturate\n"
        "from eggshard.ops.region_builder import RegionBuilder\n"
        "from eggshard.program.types import TensorType\n"
        "from eggshard.rewrites import default_rules\n"
        "b = RegionBuilder([TensorType((4, 8), 'f32')]); v = 0\n"
        "for _ in range(4):\n"
        "    (v,) = b.add('transpose', (v,), {'permutation': (1, 0)}); (v,) = b.add('tanh', (v,))\n"
        "g = saturate(b.build([v]), default_rules())\n"
        "print([[(n.op, n.children, n.rules) for n in c.nodes] for c in g.classes])\n"
    )
    outs = set()
    for seed in ("1", "2"):
        env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        outs.add(
            subprocess.run(
                [sys.executable, "-c", script, ""], check=True, capture_output=True, text=True, env=env, timeout=60
            ).stdout
        )
    assert len(outs) == 1


def test_impure_ops_are_never_merged():
    name = next(n for n in registry.names() if not registry.get(n).pure)
    builder = RegionBuilder([TensorType((4,), F)])
    builder.add("negate", (0,))
    region = builder.build([1])
    from eggshard.program.program import Op, Region

    op = Op(name, (0,), (2,))
    other = Op(name, (0,), (3,))
    region = Region(region.inputs, (*region.ops, op, other), (2, 3), (*region.types, region.types[0], region.types[0]))
    graph = saturate(region, RULES)
    check_valid(graph, region)
    assert graph.values[2] != graph.values[3]


def test_multi_result_ops_are_tuples_with_projections():
    from eggshard.program.program import Op, Region

    t = TensorType((4,), F)
    region = Region((0,), (Op("optimization_barrier", (0, 0), (1, 2)), Op("add", (1, 2), (3,))), (3,), (t, t, t, t))
    graph = saturate(region, RULES)
    check_valid(graph, region)
    (result,) = graph.classes[graph.values[2]].nodes
    assert result.op == "result" and result.attributes["index"] == 1
    assert graph.classes[result.children[0]].is_tuple and len(graph.classes[result.children[0]].types) == 2


def test_operations_of_many_operands_are_loaded():
    builder = RegionBuilder([TensorType((1,), F)] * 12)
    region = builder.build(builder.add("concatenate", tuple(range(12)), {"dimension": 0}))
    graph = saturate(region, RULES)
    check_valid(graph, region)
    assert len(graph.classes[graph.values[region.outputs[0]]].nodes[0].children) == 12


def test_a_dead_worker_costs_the_rewrites_and_not_the_graph(monkeypatch):
    region = chain()

    def dies(function, *args, **options):
        raise worker.WorkerFailure("memory", "out of memory")

    monkeypatch.setattr(worker, "call", dies)
    graph = saturate(region, RULES)
    check_valid(graph, region)
    assert graph.report.stop == "worker: memory" and graph.report.notes == ("out of memory",)


def test_a_rule_that_fails_is_reported_as_the_users_error_and_the_next_run_works():
    bad = rule("tanh(x) => negate(x)", cases=each(x=tensors((4,))), name="bad")(lambda m: 1 / 0)
    with pytest.raises(RewriteError, match="rule 'bad' failed on x: tensor<8x4xf32>"):
        saturate(chain(), [*RULES, bad])
    assert saturate(chain(2), RULES).report.matches


def test_a_users_rule_works_beside_the_default_ones():
    mine = rule("tanh(negate(x)) => negate(tanh(x))", cases=each(x=tensors((4,))), name="tanh is odd")(None)
    builder = RegionBuilder([TensorType((4,), F)])
    (a,) = builder.add("negate", (0,))
    (b,) = builder.add("tanh", (a,))
    region = builder.build(builder.add("negate", (b,)))
    graph = saturate(region, [*default_rules(), mine])
    assert {n.op for n in graph.classes[graph.values[region.outputs[0]]].nodes} == {"negate", "tanh"}


def test_a_blow_up_stops_at_the_row_limit():
    commute = rule("add(x, y) => add(y, x)", cases=each(x=tensors((4,)), y=tensors((4,))), name="c")(None)
    associate = rule(
        "add(add(x, y), z) => add(x, add(y, z))",
        mark="ρ",
        name="a",
        cases=each(x=tensors((4,)), y=tensors((4,)), z=tensors((4,))),
    )(None)
    builder = RegionBuilder([TensorType((4,), F)] * 9)
    v = 0
    for i in range(1, 9):
        (v,) = builder.add("add", (v, i))
    region = builder.build([v])
    graph = saturate(region, [commute, associate], Limits(rows=3000, iterations=50))
    check_valid(graph, region)
    assert graph.report.stop == "rows" and graph.size <= 3000


def test_warming_up_makes_the_engine_ahead():
    worker.worker().close()
    saturation.warm(RULES).join(60)
    assert worker.worker().pid is not None
