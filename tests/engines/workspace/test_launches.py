"""Workspace handed down through host programs: faults that other planners had, each as a test that it is absent here.

The host programs run on tagged memory (`Launched`), in which data that somebody else overwrote is found out.
"""

import dataclasses

import pytest
from tests.engines.workspace.launched import Launched
from tests.engines.workspace.oracle import ForeignData

from eggshard.engines.workspace import forwarding
from eggshard.engines.workspace.forwarding import forward, scalars, slice_of
from eggshard.engines.workspace.launches import (
    BRANCH,
    CALL_KINDS,
    LOOP,
    SUBMIT,
    Allocate,
    Call,
    Channel,
    Define,
    Function,
    Module,
    launch_shape,
)
from eggshard.engines.workspace.layout import Layout, lay_out
from eggshard.engines.workspace.requests import Request
from eggshard.engines.workspace.sizes import Size, parse, symbol
from eggshard.errors import WorkspaceError


def kernel(name="kernel", *requests, **options):
    requests = requests or (Request.make("scratch", "4*n"),)
    return Function(name, ("n",), requests=requests, blocks=Size.of(options.pop("blocks", 1)), **options)


def host(*body, parameters=("n",), name="main", **options):
    return Function(name, parameters, tuple(body), host=True, **options)


def allocations(module, name="main"):
    return [node for node in module.function(name).body if isinstance(node, Allocate)]


def size_of(module, symbols, name="main"):
    return sum(node.layout.stride(symbols) for node in allocations(module, name))


def test_every_block_has_a_slice_of_its_own():
    module = forward(Module.of("main", host(Call.make("kernel", {"n": "n"}, blocks="b"), parameters=("n", "b")),
                               kernel()))
    for b in (1, 3, 50):
        assert size_of(module, {"n": 5, "b": b}) == 64 * b
        Launched(module, {"n": 5, "b": b})
    call = next(c for _, c in module.function("main").calls)
    at = [slice_of(module, "main", call, "kernel", {"n": 100, "b": 3}, block) for block in range(3)]
    assert at == [0, 448, 896]

    def for_one_block(module, caller, call, callee, symbols, block, lane, iteration):
        return slice_of(module, caller, call, callee, symbols, 0, lane, iteration)

    with pytest.raises(ForeignData):
        Launched(module, {"n": 5, "b": 3}, slice_of=for_one_block)


def test_a_bidirectional_channel_has_two_rings_of_its_stated_slots():
    for slots, back, bytes in ((3, 256, 2 * 3 * 256), (3, None, 3 * 256), (None, 256, 2 * 2 * 256), (1, 128, 384)):
        module = forward(Module.of("main", host(Call.make("kernel", {"n": "n"})),
                                   Function("kernel", ("n",), channels=(Channel.make("pipe", 256, back, slots),))))
        assert size_of(module, {"n": 1}) == bytes
        Launched(module, {"n": 1})


def test_the_rings_of_a_channel_do_not_alias():
    for back in (256, 100):
        channel = Channel.make("pipe", 256, back, 2)
        layout = lay_out(channel.requests())
        used = [
            layout.offset(name, ring, slot) for name, ring in (channel.ring(False), channel.ring(True))
            for slot in range(2)
        ]
        assert len(set(used)) == 4
        ends = [u + (256 if i < 2 else back) for i, u in enumerate(used)]
        assert all(a >= e or b >= f for (a, f) in zip(used, ends, strict=True) for b, e in zip(used, ends, strict=True)
                   if a != b)
        assert max(ends) <= layout.extent()
    with pytest.raises(WorkspaceError, match="passes nothing back"):
        Channel.make("pipe", 256).ring(True)


def test_channels_of_one_kernel_are_disjoint_and_their_ends_agree():
    one, two = Channel.make("pipe", 512, slots=2), Channel.make("other", 512, 512, slots=2)
    both_ends = (one, two, Channel.make("pipe", 512, slots=2))
    module = forward(Module.of("main", host(Call.make("kernel", {"n": "n"})),
                               Function("kernel", ("n",), channels=both_ends)))
    assert size_of(module, {"n": 1}) == 6 * 512
    Launched(module, {"n": 1})
    for disagreeing in (Channel.make("pipe", 256, slots=2), Channel.make("pipe", 512, slots=4),
                        Channel.make("pipe", 512, 512, slots=2)):
        with pytest.raises(WorkspaceError, match="ends of channel 'pipe' .* disagree"):
            forward(Module.of("main", host(Call.make("kernel", {"n": "n"})),
                              Function("kernel", ("n",), channels=(one, disagreeing))))


def test_an_allocation_stands_after_every_scalar_of_its_resolved_size():
    """The size is a constant but for the number of blocks, which the host computes late."""
    module = forward(Module.of("main", host(
        Define("rows", symbol("n") * 2), Define("unused"), Define("blocks"),
        Call.make("kernel", {"n": 16}, blocks="blocks*rows"),
    ), kernel()))
    kinds = [type(node).__name__ for node in module.function("main").body]
    assert kinds == ["Define", "Define", "Define", "Allocate", "Call"]
    Launched(module, {"n": 2}, {"blocks": 3, "unused": 7})
    with pytest.raises(WorkspaceError, match="does not define"):
        forward(Module.of("main", host(Call.make("kernel", {"n": 16}, blocks="nowhere")), kernel()))


@pytest.mark.parametrize("kind", CALL_KINDS)
def test_calls_of_every_kind_hand_workspace_down(kind):
    options = {"variable": "i"} if kind == LOOP else {}
    body = Function("wrapper", ("i", "n") if kind == LOOP else ("n",), (Call.make("kernel", {"n": "n"}, blocks=2),))
    module = forward(Module.of("main", host(Call.make("wrapper", {"n": "n"}, kind=kind, **options)), body, kernel()))
    assert module.function("wrapper").signature[-1] == "workspace" == module.function("kernel").signature[-1]
    assert size_of(module, {"n": 17}) == 2 * 128
    Launched(module, {"n": 17})


def test_the_launchs_own_shape_wins_over_the_callees():
    callee = kernel(blocks=8)
    module = forward(Module.of("main", host(
        Call.make("kernel", {"n": "n"}), Call.make("kernel", {"n": "n"}, blocks=2, lanes=3),
    ), callee))
    shapes = [launch_shape(c, callee) for _, c in module.function("main").calls]
    assert [(str(b), str(n)) for b, n in shapes] == [("8", "1"), ("2", "3")]
    assert Launched(module, {"n": 1}).launches == [("kernel", 8, 1), ("kernel", 2, 3)]
    sizes = [r.footprint().constant for r in allocations(module)[0].layout.requests]
    assert sorted(str(r.footprint().value({"n": 1})) for r in allocations(module)[0].layout.requests) == ["384", "512"]
    assert sizes == [None, None]


def test_results_are_bound_by_name_and_the_workspace_is_none_of_them():
    """Two results of one type, forwarded as a tuple, returned in another order by a kernel with an extra parameter."""
    split = Function("split", ("x",), (Define("low"), Define("high")), {"first": "low", "second": "high"},
                     requests=(Request.make("scratch", 64),))
    wrapper = Function("wrapper", ("x",), (Call.make("split", {"x": "x"}, "both"),), {"*": "both"})
    swapped = {"second": "s", "first": "f"}
    main = host(Call.make("wrapper", {"x": "x"}, swapped), parameters=("x",), results={"one": "f", "two": "s"})
    module = Module.of("main", main, wrapper, split)
    threaded = forward(module)
    for each in (module, threaded):
        assert each.origin("main", "one") == ("split", "low") and each.origin("main", "two") == ("split", "high")
        assert each.results_of("wrapper") == {"first": "both.first", "second": "both.second"}
    assert threaded.function("split").signature == ("x", "workspace")
    for wrong in ({"first": "f"}, {"first": "f", "second": "s", "workspace": "w"}, {"first": "f", "third": "s"},
                  {"first": "f", "second": "f"}):
        with pytest.raises(WorkspaceError, match="binds the results|twice"):
            Module.of("main", host(Call.make("wrapper", {"x": "x"}, wrong), parameters=("x",)), wrapper, split)


def test_reading_back_makes_no_second_symbol():
    module = forward(Module.of("main", host(Define("m", symbol("n") * 4), Call.make("kernel", {"n": "m"}, blocks="n")),
                               kernel()))
    again = Module.from_json(module.to_json())
    assert again == module and again.to_json() == module.to_json()
    assert {s for a in allocations(again) for s in a.layout.symbols} == {"n"}
    assert parse("4*x_dim0 + n", {"x_dim0": symbol("n")}) == 5 * symbol("n")
    assert parse(str(3 * symbol("n"))).symbols == {"n"}


def test_what_a_receiver_keeps_is_of_its_own_slots_and_direction():
    channel = Channel.make("pipe", 4096, 100, slots=8, local_slots=2)
    assert channel.reserve(False).constant == 2 * 4096
    assert channel.reserve(True).constant == 2 * 128
    assert [str(r.footprint()) for r in channel.requests()] == [str(8 * 4096), str(8 * 128)]
    stated = Channel.make("pipe", 64)
    assert stated.slots.constant == 2 and '"slots"' in Module.of(
        "k", Function("k", channels=(stated,))).to_json()


def test_each_call_has_its_own_buffer_in_loops_and_at_several_sites():
    """Sequential calls share memory only because they follow one another; submitted ones run at the same time."""
    for kind, times in (("call", 1), (SUBMIT, 2)):
        module = forward(Module.of("main", host(
            Call.make("kernel", {"n": "n"}, kind=kind), Call.make("kernel", {"n": "n"}, kind=kind),
        ), kernel()))
        assert size_of(module, {"n": 16}) == 64 * times
        uses = [c.workspace for _, c in module.function("main").calls]
        assert len(set(uses)) == 2 and None not in uses
        Launched(module, {"n": 16})
    body = Function("body", ("i", "n"), (Call.make("kernel", {"n": "n"}, kind=SUBMIT), Call.make("kernel", {"n": "n"})))
    module = forward(Module.of("main", host(
        Call.make("body", {"n": "n"}, kind=LOOP, variable="i", overlap=3)), body, kernel()))
    Launched(module, {"n": 16}, trips={"i": 7})
    assert size_of(module, {"n": 16}) == 3 * 128


def test_offsets_and_strides_never_split_a_line():
    requests = (Request.make("record", 16), Request.make("half", 2, alignment=2), Request.make("odd", 3 * 7))
    module = forward(Module.of("main", host(Call.make("kernel", {"n": "n"}, blocks=3, lanes=2)),
                               kernel("kernel", *requests)))
    layout = module.function("kernel").workspace
    assert {layout.offset(r.name) % 64 for r in requests} == {0} and layout.stride() == 192
    call = next(c for _, c in module.function("main").calls)
    for block in range(3):
        for lane in range(2):
            assert slice_of(module, "main", call, "kernel", {"n": 1}, block, lane) % 64 == 0
    Launched(module, {"n": 1})


def test_faults_in_the_allocation_are_found():
    """The runs above would not pass on a buffer of half the bytes."""
    module = forward(Module.of("main", host(Call.make("kernel", {"n": 16}, blocks=4)), kernel()))
    (allocation,) = allocations(module)
    (request,) = allocation.layout.requests
    small = dataclasses.replace(request, lanes=Size.of(2))
    body = tuple(dataclasses.replace(node, layout=Layout((small,), (small.name,))) if node is allocation else node
                 for node in module.function("main").body)
    main = dataclasses.replace(module.function("main"), body=body)
    with pytest.raises((ForeignData, WorkspaceError)):
        Launched(Module.of("main", main, module.function("kernel")), {"n": 1})


def test_blocks_below_one_and_beyond_the_launch_are_errors():
    module = forward(Module.of("main", host(Call.make("kernel", {"n": "n"}, blocks="b"), parameters=("n", "b")),
                               kernel()))
    with pytest.raises(WorkspaceError, match="launch at least one"):
        size_of(module, {"n": 1, "b": 0})
    with pytest.raises(WorkspaceError, match="launch at least one"):
        forward(Module.of("main", host(Call.make("kernel", {"n": "n"}, blocks=0)), kernel()))
    call = next(c for _, c in module.function("main").calls)
    for block in (3, -1):
        with pytest.raises(WorkspaceError, match="not in a launch of 3 blocks"):
            slice_of(module, "main", call, "kernel", {"n": 1, "b": 3}, block)
    assert scalars(call, {"n": 4, "b": 3}) == {"n": 4}
    assert forwarding.needs(module, "kernel") and not forwarding.needs(module, "main")


def test_branches_share_the_room_of_the_largest():
    big = kernel("big", Request.make("scratch", "64*n"))
    small = kernel("small", Request.make("scratch", 64))
    none = Function("none", ("n",))
    call = Call.make(("big", "none", "small"), {"n": "n"}, kind=BRANCH)
    module = forward(Module.of("main", host(call), big, small, none))
    assert size_of(module, {"n": 9}) == 9 * 64 and size_of(module, {"n": 0}) == 64
    for chosen in range(3):
        Launched(module, {"n": 9}, chosen=chosen)
    assert module.function("none") is none
