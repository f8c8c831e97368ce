"""Tactics on the leaves of steps: which leaves they mean, and what they leave of where these may lie."""

import pytest

from eggshard import tactics as T
from eggshard.errors import MeshError, ShardingError
from eggshard.planner.choosing.ends import Ends
from eggshard.planner.choosing.narrowing import End, Narrowing, dims_of
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType
from eggshard.spmd.boundaries import even_placements

MESH = Mesh({"data": 4, "model": 2, "one": 1})


def leaf(name, *shape, carried=True):
    return End(name, TensorType(shape, "f32"), carried)


#: A step with Adam, as optax names the fields of its state.
STEP = [
    leaf("args[0]['b']", 64), leaf("args[0]['w']", 32, 64), leaf("args[1][0].count"),
    leaf("args[1][0].mu['b']", 64), leaf("args[1][0].mu['w']", 32, 64), leaf("args[1][0].nu['w']", 32, 64),
    leaf("args[2]", 128, 32, carried=False), leaf("args[3]", 128, 32, carried=False),
    leaf("args[4]", 32, 32, carried=False), leaf("result[2]", 128, carried=False),
]


def left(*tactics, ends=STEP, mesh=MESH):
    """Per leaf that tactics narrow, where it may lie, and the notes."""
    options = tuple(even_placements(mesh, end.type) for end in ends)
    narrowing = Narrowing(tactics, ends, [])
    found = narrowing.narrowed(Ends(options, (), {}, tuple(range(len(ends)))), mesh)
    return {end.name: [dims_of(p, mesh) for p in some] for end, some in zip(ends, found.inputs, strict=True)
            if end.name in narrowing.by}, narrowing.notes


def test_the_batch_is_what_is_not_fed_back():
    found, notes = left(T.data_parallel("data"))
    assert [*found] == ["args[2]", "args[3]"] and not notes
    assert all("data" in dims[0] for some in found.values() for dims in some)


@pytest.mark.parametrize("level, sharded, not_sharded", [
    (0, [], ["args[0]['b']", "args[0]['w']", "args[1][0].mu['b']", "args[1][0].mu['w']", "args[1][0].nu['w']"]),
    (1, ["args[1][0].mu['w']", "args[1][0].nu['w']"], ["args[0]['b']", "args[0]['w']"]),
    (2, ["args[1][0].mu['w']", "args[1][0].nu['w']"], ["args[0]['b']", "args[0]['w']"]),
    (3, ["args[0]['w']", "args[1][0].mu['w']", "args[1][0].nu['w']"], []),
])
def test_levels_of_zero(level, sharded, not_sharded):
    found, notes = left(T.zero(level, "data"))
    uses = {name: {any("data" in axes for axes in dims) for dims in some} for name, some in found.items()}
    assert uses == dict.fromkeys(not_sharded, {False}) | dict.fromkeys(sharded, {True}) and not notes


def test_megatron_shards_matrices_and_not_the_batch():
    found, notes = left(T.megatron("model"))
    matrices = {name: some for name, some in found.items() if name in ("args[0]['w']", "args[1][0].mu['w']")}
    assert len(matrices) == 2 and all(
        {i for dims in some for i, axes in enumerate(dims) if "model" in axes} == {0, 1} for some in matrices.values())
    assert all(any("model" in axes for axes in dims) for some in matrices.values() for dims in some)
    assert all("model" not in dims[0] for name in ("args[2]", "args[3]") for dims in found[name]) and not notes
    assert "args[0]['b']" not in found and "args[4]" not in found


def test_tactics_compose_in_order():
    found, notes = left(T.data_parallel("data"), T.zero(3, "data"), T.megatron("model"))
    assert all({*dims[0], *dims[1]} == {"data", "model"} for dims in found["args[0]['w']"])
    assert found["args[2]"] == [(("data",), ()), (("data",), ("model",))] and not notes
    _, notes = left(T.replicate("data"), T.data_parallel("data"))
    assert notes == ["tactic data_parallel('data') left args[2] (tensor<128x32xf32>), args[3] (tensor<128x32xf32>) as "
                     "before: none of the placements left is sharded along 'data' in dimension 0"]


def test_sequences_experts_and_fields():
    tokens = [leaf("args[0]['w']", 16, 16), leaf("args[1]", 8, 64, 16, carried=False),
              leaf("args[2]", 8, carried=False)]
    assert left(T.sequence_parallel("model"), ends=tokens)[0].keys() == {"args[1]"}
    assert all(dims[1][0] == "data" for dims in left(T.sequence_parallel("data", 1), ends=tokens)[0]["args[1]"])
    assert all("data" in dims[2] for dims in left(T.sequence_parallel("data", 2), ends=tokens)[0]["args[1]"])

    mixture = [leaf("args[0]['up']", 3, 8, 16, 32), leaf("args[0]['router']", 16, 8),
               leaf("args[1]", 8, 16, carried=False)]
    found, _ = left(T.expert_parallel("data", 8), ends=mixture)
    assert [*found] == ["args[0]['up']"] and all("data" in dims[1] for dims in found["args[0]['up']"])

    field = [leaf("args[0]", 64, 32, 4, carried=False), leaf("args[1]", 64, 32, carried=False), leaf("args[2]", 16, 16),
             leaf("result", 64, 32, carried=False)]
    found, _ = left(T.halo("data", "model"), ends=field)
    assert found == {name: [(("data",), ("model",), ())[:rank]] for name, rank in (
        ("args[0]", 3), ("args[1]", 2), ("result", 2))}
    strips, _ = left(T.halo("data", dims=[1]), ends=field)
    assert {*strips} == {*found} and all(dims[1][0] == "data" for some in strips.values() for dims in some)


def test_leaves_are_named_by_globs_and_functions():
    assert left(T.shard("data", 1, of="args[1][0].*u['w']"))[0].keys() == {"args[1][0].mu['w']", "args[1][0].nu['w']"}
    assert left(T.replicate("data", of=lambda end: end.is_result))[0].keys() == {"result[2]"}
    assert left(T.zero(1, "data", of="args[0]['w']"))[0].keys() == {"args[0]['w']", "args[0]['b']"}
    assert left(T.megatron("model", of="args[4]"))[0].keys() == {"args[2]", "args[3]", "args[4]"}


@pytest.mark.parametrize("names, parameters", [
    (["args[0].opt_state[0].mu['params']", "args[0].params['w']"], ["args[0].params['w']"]),
    (["args[0]['optimizer']['m']", "args[0]['model']['w']"], ["args[0]['model']['w']"]),
    (["args[1]['w']", "args[2]['m']"], ["args[1]['w']"]),
    (["args[0]['trace']", "args[0]['w']"], ["args[0]['w']"]),
])
def test_parameters_are_told_by_their_names(names, parameters):
    found, _ = left(T.zero(1, "data"), ends=[leaf(name, 32, 32) for name in names])
    assert [name for name in found if all("data" not in str(dims) for dims in found[name])] == parameters
    assert len(found) == 2


def test_axes_of_one_device_ask_for_nothing():
    assert left(T.data_parallel("one"), T.shard("one"), T.replicate("one")) == ({}, [])


@pytest.mark.parametrize("tactic, kind, words", [
    (T.data_parallel("rows"), MeshError, r"tactic data_parallel\('rows'\): the mesh has no axis 'rows'"),
    (T.shard("data", of="args[9]*"), ShardingError, r"shard\('data', of='args\[9\]\*'\): no leaf is meant by of="),
    (T.expert_parallel("data", 7), ShardingError, "no leaf is fed back and has a dimension of 7 experts"),
    (T.halo("data", dims=[5]), ShardingError, r"no leaf is a field with a dimension 5; say which .* \(leaves: args"),
])
def test_what_a_tactic_does_not_find_is_refused(tactic, kind, words):
    with pytest.raises(kind, match=words):
        left(tactic)


def test_where_nothing_is_fed_back_leaves_have_to_be_named():
    ends = [leaf("args[0]", 32, 32, carried=False), leaf("args[1]", 64, 32, carried=False)]
    for tactic in (T.data_parallel("data"), T.zero(3, "data"), T.megatron("model"), T.sequence_parallel("model")):
        with pytest.raises(ShardingError, match=r"say which ones are meant: of='args\[0\]\*'"):
            left(tactic, ends=ends)
    assert left(T.data_parallel("data", of="args[1]"), ends=ends)[0].keys() == {"args[1]"}


@pytest.mark.parametrize("make, words", [
    (lambda: T.zero(4, "data"), "levels 0, 1, 2 and 3"),
    (lambda: T.halo(), "one dimension"),
    (lambda: T.halo("data", dims=[0, 1]), "one dimension"),
])
def test_tactics_that_make_no_sense_are_refused(make, words):
    with pytest.raises(ShardingError, match=words):
        make()


def test_tactics_are_written_as_they_are_called():
    written = [T.shard("data", 1), T.zero(3, "data", of="args*"), T.sequence_parallel("data", 2),
               T.halo("data", dims=[1]), T.replicate("data", of=lambda end: True)]
    assert [*map(str, written)] == [
        "shard('data', 1)", "zero(3, 'data', of='args*')", "sequence_parallel('data', 2)", "halo('data', dims=[1])",
        "replicate('data', of=<lambda>)"]
