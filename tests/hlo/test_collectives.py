"""The wire-byte counter: each spelling by hand with its expected bytes, and programs that XLA compiled."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from eggshard.errors import EggshardError
from eggshard.hlo.collectives import CollectiveCount, count_collectives

HEADER = "HloModule m, is_scheduled=true, entry_computation_layout={(f32[2]{0})->f32[2]{0}}, num_partitions=8\n\n"
EVERYONE = "{{0,1,2,3,4,5,6,7}}"


def module(*lines: str, others: str = "", header: str = HEADER) -> str:
    body = "".join(f"  {line}\n" for line in lines)
    return f"{header}{others}ENTRY %main.1_spmd (p: f32[2]) -> f32[2] {{\n  %p = f32[2]{{0}} parameter(0)\n{body}}}\n"


def computation(name: str, *lines: str) -> str:
    body = "".join(f"  {line}\n" for line in lines)
    return f"%{name} (a: f32[2]) -> f32[2] {{\n{body}}}\n\n"


def op(kind: str, shape: str = "f32[64,64]{1,0}", groups: str = EVERYONE, more: str = ", use_global_device_ids=true"):
    return f"%op = {shape} {kind}(%p), channel_id=1, replica_groups={groups}{more}"


def permute(pairs: str, shape: str = "f32[64,64]{1,0}") -> str:
    return f"%cp = {shape} collective-permute(%p), channel_id=1, source_target_pairs={pairs}"


R = 64 * 64 * 4


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("all-gather", R * 7 / 8),
        ("all-reduce", 2 * R * 7 / 8),
        ("reduce-scatter", R * 7),
        ("all-to-all", R * 7 / 8),
        ("ragged-all-to-all", R),
        ("collective-broadcast", R),
    ],
)
def test_ring_bytes_of_each_kind(kind: str, expected: float) -> None:
    count = count_collectives(module(op(kind)))
    (only,) = count.ops
    assert (only.kind, only.group_size, only.result_bytes, only.trip_count) == (kind, 8, R, 1)
    assert only.dtypes == ("f32",)
    assert only.computation == "main.1_spmd"
    assert count.wire_bytes == only.wire_bytes == expected
    assert count.by_kind == {kind: 1}


def test_the_root_of_a_broadcast_receives_nothing() -> None:
    count = count_collectives(module(op("collective-broadcast", groups="{{3,1},{2,0}}")))
    assert count.device_bytes.tolist() == [R, R, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("spelling", "groups"),
    [
        ("{{0,2,4,6},{1,3,5,7}}", [[0, 2, 4, 6], [1, 3, 5, 7]]),
        ("{{0,1,2},{4}}", [[0, 1, 2], [4]]),
        ("{}", [list(range(8))]),
        ("{{}}", [list(range(8))]),
        ("[2,4]<=[8]", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("[2,4]<=[4,2]T(1,0)", [[0, 2, 4, 6], [1, 3, 5, 7]]),
        ("[4,2]<=[2,2,2]T(2,0,1)", [[0, 2], [4, 6], [1, 3], [5, 7]]),
        ("[8,1]<=[8]", [[i] for i in range(8)]),
        ("mesh['axis_0'=4,'axis_1'=2] {'axis_0'}", [[0, 2, 4, 6], [1, 3, 5, 7]]),
        ("mesh['axis_0'=4,'axis_1'=2] {'axis_1'}", [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ("mesh[x=4,y=2] {x}", [[0, 2, 4, 6], [1, 3, 5, 7]]),
        ("mesh['axis_0'=4,'axis_1'=2] {'axis_1','axis_0'}", [[0, 2, 4, 6, 1, 3, 5, 7]]),
        ("mesh['axis_0'=4,'axis_1'=2] {}", [[i] for i in range(8)]),
        ("mesh['axis_0'=1,'axis_1'=4,'axis_2'=2] {'axis_1'}", [[0, 2, 4, 6], [1, 3, 5, 7]]),
        ("mesh['axis_0'=2,'axis_1'=4], device_ids=([4,2]T(1,0)) {'axis_1'}", [[0, 2, 4, 6], [1, 3, 5, 7]]),
        ("mesh['axis_0'=2,'axis_1'=4], device_ids=([2,2,2]T(0,2,1)) {'axis_1':(2)2}", [[0, 2], [1, 3], [4, 6], [5, 7]]),
        ("mesh['axis_0'=2,'axis_1'=2], device_ids=(3,1,2,0) {'axis_1'}", [[3, 1], [2, 0]]),
        ("mesh['axis_0'=8] {'axis_0':(1)2}", [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("mesh['axis_0'=8] {'axis_0':(4)2}", [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ("mesh['axis_0'=8] {'axis_0':(4)2,'axis_0':(1)2}", [[0, 4, 1, 5], [2, 6, 3, 7]]),
    ],
)
def test_every_spelling_of_groups(spelling: str, groups: list[list[int]]) -> None:
    # A broadcast tells the order inside a group as well: its first device receives nothing.
    by_set = count_collectives(module(op("all-gather", groups=spelling)))
    by_order = count_collectives(module(op("collective-broadcast", groups=spelling)))
    gathered, sent = np.zeros(8), np.zeros(8)
    for group in groups:
        gathered[group] = R * (len(group) - 1) / len(group)
        sent[group[1:]] = R
    assert by_set.device_bytes.tolist() == gathered.tolist()
    assert by_order.device_bytes.tolist() == sent.tolist()
    assert by_set.ops[0].group_size == max(map(len, groups))


def test_empty_groups_need_the_number_of_devices() -> None:
    text = module(op("all-gather", groups="{}"), header="HloModule m\n\n")
    assert count_collectives(text, num_devices=4).wire_bytes == R * 3 / 4
    with pytest.raises(EggshardError, match="num_devices=4"):
        count_collectives(module(op("all-gather")), num_devices=4)
    with pytest.raises(EggshardError, match="participant 7 of 1"):
        count_collectives(module(op("all-gather"), header="HloModule m\n\n"))


def test_replicas_and_partitions() -> None:
    header = "HloModule m, replica_count=2, num_partitions=4\n\n"
    of = partial(module, header=header)
    across_replicas = "%op = f32[8]{0} all-reduce(%p), replica_groups={{0,1}}, to_apply=%add"
    assert count_collectives(of(across_replicas)).ops[0].group_size == 2
    replicas_and_partitions = op("all-reduce", "f32[8]{0}", "{{0},{1}}", ", to_apply=%add")
    assert count_collectives(of(replicas_and_partitions)).ops[0].group_size == 4
    across_partitions = op("all-to-all", "f32[8]{0}", "{{0,1,2,3}}", "")
    assert count_collectives(of(across_partitions)).device_bytes.tolist() == [24.0] * 8
    assert count_collectives(of(permute("{{0,1}}", "f32[8]{0}"))).device_bytes.tolist() == [0, 32, 0, 0, 0, 32, 0, 0]


def test_a_permute_counts_real_targets_only() -> None:
    count = count_collectives(module(permute("{{0,1},{1,0},{2,2},{3,4}}")))
    assert count.device_bytes.tolist() == [R, R, 0, 0, R, 0, 0, 0]
    assert (count.wire_bytes, count.average_wire_bytes) == (R, R * 3 / 8)
    assert count.ops[0].group_size == 3
    assert count_collectives(module(permute("{}"))).wire_bytes == 0


def test_serial_bytes_are_not_the_busiest_device() -> None:
    count = count_collectives(module(permute("{{0,1}}"), permute("{{1,0}}")))
    assert (count.wire_bytes, count.busiest_device_bytes, count.average_wire_bytes) == (2 * R, R, R / 4)
    assert count.summary == "2 CP"


def test_variadic_results_are_summed() -> None:
    shape = "(f32[8,8]{1,0}, f32[8,8]{1,0}, bf16[4]{0:T(256)}, /*index=3*/s8[])"
    (only,) = count_collectives(module(op("all-to-all", shape))).ops
    assert only.dtypes == ("f32", "f32", "bf16", "s8")
    assert only.result_bytes == 256 + 256 + 8 + 1


@pytest.mark.parametrize(
    ("start", "size"),
    [
        ("(f32[2]{0}, f32[16]{0}) all-gather-start(%p)", 64),
        ("((f32[2]{0}, s8[3]{0}), (f32[16]{0}, s8[24]{0})) all-gather-start(%p, %q)", 88),
        ("f32[16]{0} all-reduce-start(%p)", 64),
        ("(f32[16]{0}, f32[4]{0}) all-reduce-start(%p, f32[4]{0} %q)", 80),
        ("((f32[16]{0}), f32[2]{0}, u32[]) reduce-scatter-start(%p)", 8),
        ("((f32[4]{0}, f32[4]{0}), (f32[4]{0}, f32[4]{0}), u32[]) all-to-all-start(%p, %q)", 32),
    ],
)
def test_asynchronous_pairs_count_once(start: str, size: int) -> None:
    kind = start[: start.index("-start")].split()[-1]
    attributes = f"channel_id=1, replica_groups={EVERYONE}, use_global_device_ids=true"
    text = module(f"%s = {start}, {attributes}", f"%d = f32[16]{{0}} {kind}-done(%s), {attributes}")
    (only,) = count_collectives(text).ops
    assert (only.kind, only.result_bytes) == (kind, size)


def test_asynchronous_permute_and_wrapped_computation() -> None:
    start = "%s = (f32[16]{0}, f32[16]{0}, u32[], u32[]) collective-permute-start(%p)"
    text = module(
        f"{start}, channel_id=1, source_target_pairs={{{{0,1}}}}", "%d = f32[16]{0} collective-permute-done(%s)"
    )
    assert count_collectives(text).wire_bytes == 64
    wrapped = computation("wrapped", "ROOT " + op("all-to-all", "f32[16]{0}", more=""))
    text = module(
        "%s = ((f32[16]{0}), f32[16]{0}, u32[]) async-start(%p), calls=%wrapped",
        "%u = ((f32[16]{0}), f32[16]{0}, u32[]) async-update(%s), calls=%wrapped",
        "%d = f32[16]{0} async-done(%u), calls=%wrapped",
        others=wrapped,
    )
    assert count_collectives(text).by_kind == {"all-to-all": 1}


def loop(body: str, condition: str, trips: int | None, *, escaped: bool = False) -> str:
    config = f'{{"known_induction_variable":{{"tuple_index":"0"}},"known_trip_count":{{"n":"{trips}"}}}}'
    if escaped:
        config = '"' + config.replace('"', '\\"') + '"'
    known = "" if trips is None else f", backend_config={config}"
    return f"%w = (s32[], f32[2]{{0}}) while(%p), condition=%{condition}, body=%{body}{known}"


@pytest.mark.parametrize("escaped", [False, True])
def test_loops_multiply(escaped: bool) -> None:
    others = (
        computation("inner", permute("{{0,1}}"))
        + computation("test", op("all-reduce", "f32[]"))
        + computation("empty", "%a = f32[2]{0} parameter(0)")
        + computation("outer", loop("inner", "empty", 5, escaped=escaped), op("all-gather"))
    )
    count = count_collectives(module(loop("outer", "test", 3), others=others))
    assert count.by_kind == {"all-gather": 3, "all-reduce": 4, "collective-permute": 15}
    assert count.wire_bytes == 15 * R + 3 * R * 7 / 8 + 4 * 7
    assert count.device_bytes[1] - count.device_bytes[0] == 15 * R


def test_a_loop_without_trip_count() -> None:
    quiet = computation("body", "%a = f32[2]{0} parameter(0)") + computation("cond", "%a = f32[2]{0} parameter(0)")
    assert count_collectives(module(loop("body", "cond", None), others=quiet)).ops == ()
    loud = computation("body", permute("{{0,1}}")) + computation("cond", "%a = f32[2]{0} parameter(0)")
    with pytest.raises(EggshardError, match="trip count"):
        count_collectives(module(loop("body", "cond", None), others=loud))
    assert count_collectives(module(loop("body", "cond", 0), others=loud)).ops == ()


@pytest.mark.parametrize(
    "attributes", ["branch_computations={%small, %big}", "true_computation=%small, false_computation=%big"]
)
def test_the_costliest_branch_counts(attributes: str) -> None:
    others = computation("small", op("all-gather", "f32[8]{0}")) + computation("big", op("all-gather"))
    text = module(f"%c = f32[2]{{0}} conditional(%i, %p, %p), {attributes}", others=others)
    assert count_collectives(text).wire_bytes == R * 7 / 8


def test_calls_and_fusions_are_followed_each_time() -> None:
    others = computation("f", op("all-gather")) + computation("g", "%c = f32[2]{0} call(%a), to_apply=%f")
    call = "%f1 = f32[2]{0} fusion(%p), kind=kCustom, calls=%g"
    assert count_collectives(module(call, call, others=others)).by_kind == {"all-gather": 2}


def test_metadata_is_not_read() -> None:
    name = 'metadata={op_name="jit(f)/channel_id=1, replica_groups={{0,1}} body=%x \\"q\\" }" stack_frame_id=3}'
    assert count_collectives(module(f"%a = f32[2]{{0}} add(%p, %p), {name}")).ops == ()
    assert "metadata" not in count_collectives(module(op("all-gather") + ", " + name)).ops[0].text


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("pred", 8), ("s4", 4), ("u4", 4), ("s2", 2), ("u1", 1), ("s8", 8), ("u64", 64), ("bf16", 16), ("f16", 16)]
    + [("f64", 64), ("c64", 64), ("c128", 128), ("f8e4m3fn", 8), ("f8e4m3b11fnuz", 8), ("f8e5m2", 8)]
    + [("f8e8m0fnu", 8), ("f4e2m1fn", 4), ("token", 0)],
)
def test_element_types(dtype: str, size: int) -> None:
    (only,) = count_collectives(module(op("all-gather", f"{dtype}[16,<=8]{{1,0:T(8,128)}}"))).ops
    assert only.result_bytes == 16 * size


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (op("all-shuffle"), "unknown kind"),
        ("%r = (f32[2]{0}, u32[], token[]) recv(%t), channel_id=3", "unknown kind"),
        (op("all-gather", groups="{{0,1},+}"), "who takes part"),
        (op("all-gather", groups="mesh['a'=8] {'b'}"), "who takes part"),
        (op("all-gather", groups="mesh['a'=8] {'a':(3)2}"), "who takes part"),
        (op("all-gather", groups="mesh['a'=8], device_ids=([4]) {'a'}"), "who takes part"),
        (op("all-gather", groups="[2,3]<=[8]"), "who takes part"),
        (op("all-gather", groups="[2,4]<=[4,2]T(1,1)"), "who takes part"),
        (op("all-gather", groups="{{0,8}}"), "participant 8 of 8"),
        (op("all-gather", "f32[?]{0}"), "not known"),
        (op("all-gather", "q7[4]{0}"), "element type"),
        ("%op = f32[2]{0} collective-permute(%p), channel_id=1", "source_target_pairs"),
        (permute("{{0,1}}") + ", slice_sizes={{1}}", "in-place"),
        (permute("{{0,1,2}}"), "who takes part"),
        (op("all-gather-start", "f32[2]{0}"), "operands"),
        ("%c = f32[2]{0} call(%p), to_apply=%nowhere", "nowhere"),
        ("gibberish, channel_id=1 = ", "cannot read"),
    ],
)
def test_what_cannot_be_counted_is_an_error(line: str, message: str) -> None:
    with pytest.raises(EggshardError, match=message):
        count_collectives(module(line))


def test_broken_modules_are_errors() -> None:
    with pytest.raises(EggshardError, match="ENTRY"):
        count_collectives("")
    with pytest.raises(EggshardError, match="lost"):
        count_collectives(module(others=computation("lost", op("all-gather"))))


def test_host_transfers_are_not_counted() -> None:
    assert count_collectives(module("%s = token[] send(%p), channel_id=1, is_host_transfer=true")).ops == ()


def test_names_without_percent_signs() -> None:
    text = "HloModule m, num_partitions=2\n\nf {\n  op = f32[8] all-gather(p), channel_id=1, replica_groups={}\n}\n\n"
    text += "ENTRY e {\n  p = f32[4] parameter(0)\n  ROOT c = f32[8] call(p), to_apply=f\n}\n"
    assert count_collectives(text).wire_bytes == 16


def test_a_megabyte_is_counted_quickly() -> None:
    quiet = ['%fusion.1 = f32[64,64]{1,0} fusion(%p, %p), kind=kLoop, calls=%f, metadata={op_name="jit(f)/add"}']
    text = module(*(quiet * 10_000), *([permute("{{0,1}}")] * 100), others=computation("f", "%a = f32[2] add(%a, %a)"))
    assert len(text) > 1_000_000
    assert count_collectives(text).by_kind == {"collective-permute": 100}


# What XLA compiles.

jax = pytest.importorskip("jax")
lax = jax.lax
P = jax.sharding.PartitionSpec


@pytest.fixture(scope="module")
def compiled() -> Callable[..., CollectiveCount]:
    if len(jax.devices()) < 8:
        pytest.skip("needs 8 devices")
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("x", "y"))

    def run(function, in_specs, out_specs, shape=(64, 64), dtype="float32") -> CollectiveCount:
        mapped = jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
        lowered = jax.jit(mapped).lower(jax.ShapeDtypeStruct(shape, dtype))
        return count_collectives(lowered.compile().as_text())

    return run


BOTH = ("x", "y")
XLA_PROGRAMS = {
    "all-gather": (lambda v: lax.all_gather(v, "x", tiled=True), P("x"), P(), R * 3 / 4),
    "all-gather of both": (lambda v: lax.all_gather(v, BOTH, tiled=True), P(BOTH), P(), R * 7 / 8),
    "all-reduce": (lambda v: lax.psum(v, "y"), P("x", "y"), P("x"), R / 8),
    "reduce-scatter": (lambda v: lax.psum_scatter(v, BOTH, tiled=True), P(), P(BOTH), R / 8 * 7),
    "all-to-all": (lambda v: lax.all_to_all(v, BOTH, 0, 1, tiled=True), P(None, BOTH), P(BOTH), R / 8 * 7 / 8),
    "collective-permute": (lambda v: lax.ppermute(v, "x", [(0, 1), (1, 2), (3, 3)]), P("x"), P("x"), R / 4),
}


@pytest.mark.parametrize("name", XLA_PROGRAMS)
def test_compiled_programs(name: str, compiled: Callable[..., CollectiveCount]) -> None:
    function, in_specs, out_specs, expected = XLA_PROGRAMS[name]
    count = compiled(function, in_specs, out_specs)
    assert count.by_kind == {name.removesuffix(" of both"): 1}
    assert count.wire_bytes == expected
    assert count.num_devices == 8


def test_compiled_permute_averages_over_devices(compiled: Callable[..., CollectiveCount]) -> None:
    count = compiled(*XLA_PROGRAMS["collective-permute"][:3])
    assert count.average_wire_bytes == R / 4 / 2


def test_compiled_loop(compiled: Callable[..., CollectiveCount]) -> None:
    def steps(v):
        return lax.fori_loop(0, 5, lambda _, a: lax.ppermute(a, "x", [(0, 1), (1, 0)]) + 1, v)

    assert compiled(steps, P("x"), P("x")).by_kind == {"collective-permute": 5}


def test_compiled_loop_with_communicating_condition_is_an_error(compiled: Callable[..., CollectiveCount]) -> None:
    def steps(v):
        return lax.while_loop(lambda a: lax.psum(a.sum(), BOTH) < 3, lambda a: a + 1, v)

    with pytest.raises(EggshardError, match="trip count"):
        compiled(steps, P("x"), P("x"))


def test_compiled_conditional(compiled: Callable[..., CollectiveCount]) -> None:
    def choose(v):
        pred = lax.psum(v.sum(), BOTH) > 0
        return lax.cond(pred, lambda a: lax.psum(a, "x"), lambda a: lax.ppermute(a, "x", [(0, 1), (1, 0)]), v)

    assert compiled(choose, P("x"), P("x")).by_kind == {"all-reduce": 2}


def test_compiled_reduction_says_which_type_it_communicates(compiled: Callable[..., CollectiveCount]) -> None:
    count = compiled(lambda v: lax.psum(v, "y"), P("x", "y"), P("x"), dtype="bfloat16")
    (only,) = count.ops
    width = {"bf16": 2, "f32": 4}[only.dtypes[0]]  # a back end may widen it
    assert only.wire_bytes == 16 * 32 * width


def test_compiled_combined_reductions(compiled: Callable[..., CollectiveCount]) -> None:
    count = compiled(lambda v: (lax.psum(v, "x"), lax.psum(v * 2, "x")), P("x"), (P(), P()))
    assert count.wire_bytes == 2 * 2 * (R / 4) * 3 / 4


def test_compiled_without_collectives(compiled: Callable[..., CollectiveCount]) -> None:
    count = compiled(lambda v: v + 1, P("x"), P("x"))
    assert (count.ops, count.wire_bytes, count.busiest_device_bytes, count.summary) == ((), 0, 0, "none")
