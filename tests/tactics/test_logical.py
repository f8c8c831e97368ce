"""Logical axes: what rules fix, and how names without rules are settled."""

import pytest
from jax.sharding import PartitionSpec as P
from tests.tactics.test_tactics import MESH, left

from eggshard import tactics as T
from eggshard.errors import MeshError, ShardingError
from eggshard.planner.choosing.narrowing import End
from eggshard.program.types import TensorType
from eggshard.tactics.logical import LogicalAxes


def leaf(name, *shape):
    return End(name, TensorType(shape, "f32"), True)


ENDS = [leaf("args[0]['in'].value", 32, 64), leaf("args[0]['out'].value", 64, 32), leaf("args[0]['b'].value", 64),
        leaf("args[1][0].mu['in'].value", 32, 64), leaf("args[2]", 128, 32)]
AXES = ({"in": P("embed", "mlp"), "out": P("mlp", "embed"), "b": ("mlp",)}, ({"count": None},), ("batch", "embed"))
RULES = [("batch", "data"), ("mlp", "model"), ("embed", None)]


def test_rules_fix_dimensions():
    found, notes = left(T.logical_axes(AXES, RULES), ends=ENDS)
    assert found == {"args[0]['in'].value": [((), ("model",))], "args[0]['out'].value": [(("model",), ())],
                     "args[0]['b'].value": [(("model",),)], "args[2]": [(("data",), ())]} and not notes


def test_names_may_be_given_by_globs():
    found, _ = left(T.logical_axes({"*['in']*": ("embed", "mlp")}, RULES), ends=ENDS)
    assert found == {name: [((), ("model",))] for name in ("args[0]['in'].value", "args[1][0].mu['in'].value")}


def test_the_first_rule_holds_whose_axes_are_free():
    rules = [("mlp", "model"), ("embed", "model"), ("embed", ("data", "one"))]
    found, _ = left(T.logical_axes(AXES, rules), ends=ENDS)
    assert found["args[0]['in'].value"] == [(("data",), ("model",))] and all(
        dims[1] == ("model",) for dims in found["args[2]"])
    found, _ = left(T.logical_axes(AXES, rules[:2]), ends=ENDS)
    assert found["args[0]['in'].value"] == [((), ("model",))]


def test_mesh_axes_and_none_are_names_too():
    found, _ = left(T.logical_axes([None, None, (None, "data")]), ends=ENDS)
    assert found == {"args[2]": [((), ("data",))]}


def test_names_without_rules_are_settled_by_most_bytes():
    tactic = T.logical_axes(AXES, RULES[:1])
    assert isinstance(tactic, LogicalAxes)
    at = {ENDS[0]: ((), ("model",)), ENDS[1]: ((), ()), ENDS[2]: (("model",),), ENDS[4]: (("data",), ())}
    assert tactic.rules(at, MESH) == (("batch", "data"), ("embed", None), ("mlp", "model"))
    settled = tactic.settled(at, MESH)
    assert isinstance(settled, LogicalAxes) and settled.given == (("batch", ("data",)), ("mlp", ("model",)))
    assert settled.settled(at, MESH) is None
    assert tactic.without(["args[0]['out'].value"]).settled(at, MESH) is None


@pytest.mark.parametrize("axes, rules, kind, words", [
    (({"in": P("embed")},), (), ShardingError, r"args\[0\]\['in'\].value .* is named \('embed',\); give one name per"),
    (({"in": P("mlp", "mlp")},), (), ShardingError, "each once"),
    (({"elsewhere": P("mlp")},), (), ShardingError, "no leaf has logical axes"),
    (AXES, [("mlp", "tensor")], MeshError, "no axis 'tensor'"),
])
def test_names_that_do_not_fit_are_refused(axes, rules, kind, words):
    with pytest.raises(kind, match=f"tactic logical_axes: .*{words}"):
        left(T.logical_axes(axes, rules), ends=ENDS)


def test_entries_are_one_name_each():
    with pytest.raises(ShardingError, match="not one name"):
        T.logical_axes([P(("embed", "mlp"))])
