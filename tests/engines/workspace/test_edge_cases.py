"""Edge cases of workspaces, one test for each kind: launches, channels, calls, wrappers, scalars, results, sizes."""

import random

import pytest
from tests.engines.workspace.launched import Launched
from tests.engines.workspace.test_launches import allocations, host, kernel, size_of

from eggshard.engines.workspace.forwarding import forward, stripped
from eggshard.engines.workspace.launches import (
    BRANCH,
    CALL,
    LOOP,
    SUBMIT,
    Allocate,
    Call,
    Channel,
    Define,
    Extent,
    Function,
    Module,
)
from eggshard.engines.workspace.layout import lay_out
from eggshard.engines.workspace.requests import Request
from eggshard.engines.workspace.sizes import Size, symbol
from eggshard.errors import WorkspaceError


def assert_runs(*functions, symbols, **options):
    """The module forwarded, run on tagged memory, read back and forwarded again: it stays as it is."""
    module = forward(Module.of("main", *functions))
    Launched(module, symbols, **options)
    assert forward(module) == module == Module.from_json(module.to_json())
    assert forward(stripped(module)) == module
    return module


def test_numbers_of_blocks():
    """One, many more than there are cores, one from an extent of an input, two of one kernel; never none."""
    main = host(
        Call.make("kernel", {"n": "n"}, blocks=1), Call.make("kernel", {"n": "n"}, blocks=300),
        Call.make("kernel", {"n": "n"}, blocks=Extent(symbol("rows"), 16).blocks), parameters=("n", "rows"),
    )
    module = assert_runs(main, kernel(), symbols={"n": 3, "rows": 70})
    assert size_of(module, {"n": 3, "rows": 70}) == 300 * 64
    assert size_of(module, {"n": 3, "rows": 16 * 500}) == 500 * 64
    with pytest.raises(WorkspaceError, match="launch at least one"):
        size_of(module, {"n": 3, "rows": 0})
    with pytest.raises(WorkspaceError, match="non-negative"):
        size_of(module, {"n": 3, "rows": -1})


def test_channels_one_two_bidirectional_and_mixed():
    channels = (
        Channel.make("one", 64), Channel.make("two", 128, slots=8), Channel.make("both", 100, 100, 4),
        Channel.make("uneven", 64, 1000, "k"),
    )
    module = assert_runs(host(Call.make("kernel", {"n": "n", "k": "k"}), parameters=("n", "k")),
                         Function("kernel", ("n", "k"), channels=channels), symbols={"n": 1, "k": 3})
    assert size_of(module, {"n": 1, "k": 3}) == 2 * 64 + 8 * 128 + 2 * 4 * 128 + 3 * (64 + 1024)
    with pytest.raises(WorkspaceError, match="launch at least one"):
        size_of(module, {"n": 1, "k": 0})


@pytest.mark.parametrize("kind", [CALL, SUBMIT, LOOP, BRANCH])
def test_one_kernel_at_several_places(kind):
    """Twice in sequence, in a loop, in a branch, through a wrapper, submitted."""
    loop = Function("loop", ("i", "n"), (Call.make("kernel", {"n": "4*n"}),))
    wrapper = Function("wrapper", ("n",), (Call.make("kernel", {"n": "n"}, kind=SUBMIT),))
    other = Function("other", ("n",))
    calls = {
        CALL: Call.make("wrapper", {"n": "2*n"}), SUBMIT: Call.make("wrapper", {"n": "n"}, kind=SUBMIT),
        LOOP: Call.make("loop", {"n": "n"}, kind=LOOP, variable="i"),
        BRANCH: Call.make(("wrapper", "other"), {"n": "n"}, kind=BRANCH),
    }
    body = (Call.make("kernel", {"n": "n"}), calls[kind], Call.make("kernel", {"n": "n"}, blocks=2), calls[kind])
    for chosen in (0, 1):
        assert_runs(host(*body), kernel(), loop, wrapper, other, symbols={"n": 33}, chosen=chosen)


def test_wrappers_in_wrappers_and_diamonds():
    one = Function("one", ("n",), (Call.make("two", {"n": "n"}), Call.make("helper", {"n": "n"})))
    two = Function("two", ("n",), (Call.make("three", {"n": "n"}), Call.make("three", {"n": "2*n"}, kind=SUBMIT)))
    three = Function("three", ("n",), (Call.make("kernel", {"n": "n"}, blocks=2),))
    aside = Function("aside", ("n",), (Call.make("three", {"n": "n"}, kind=SUBMIT), Call.make("kernel", {"n": "n"})))
    helper = Function("helper", ("n",))
    main = host(Call.make("one", {"n": "n"}, kind=SUBMIT), Call.make("aside", {"n": "n"}),
                Call.make("helper", {"n": "n"}))
    module = assert_runs(main, one, two, three, aside, helper, kernel(), symbols={"n": 20})
    assert module.function("helper") == helper
    for name in ("one", "two", "three", "aside", "kernel"):
        assert module.function(name).signature == ("n", "workspace")
    for recursive in (
        (Function("a", ("n",), (Call.make("a", {"n": "n"}),)),),
        (Function("a", ("n",), (Call.make("b", {"n": "n"}),)),
         Function("b", ("n",), (Call.make(("c", "a"), {"n": "n"}, kind=BRANCH),)), Function("c", ("n",))),
    ):
        with pytest.raises(WorkspaceError, match="recursive"):
            Module.of("main", host(Call.make("a", {"n": "n"})), *recursive)


def test_scalars_defined_on_the_way():
    """After the start, from the loop's variable, inside a branch: allocated there, and no earlier."""
    late = host(Define("k"), Call.make("kernel", {"n": "k*n"}))
    module = assert_runs(late, kernel(), symbols={"n": 3}, runtime={"k": 5})
    assert [type(x) for x in module.function("main").body] == [Define, Allocate, Call]

    body = host(Define("size", symbol("i") * symbol("n") + 1), Call.make("kernel", {"n": "size"}),
                Call.make("kernel", {"n": "n"}), parameters=("i", "n"), name="body")
    main = host(Call.make("body", {"n": "n"}, kind=LOOP, variable="i"))
    module = assert_runs(main, body, kernel(), symbols={"n": 30}, trips={"i": 4})
    (inside,), (outside,) = allocations(module, "body"), allocations(module)
    assert inside.layout.symbols == {"i", "n"} and outside.layout.symbols == {"n"}
    assert [type(x) for x in module.function("body").body] == [Allocate, Define, Call, Call]

    arm = host(Define("m"), Call.make("kernel", {"n": "m"}), parameters=("n",), name="arm")
    other = Function("other", ("n",))
    module = assert_runs(host(Call.make(("arm", "other"), {"n": "n"}, kind=BRANCH)), arm, other, kernel(),
                         symbols={"n": 1}, runtime={"m": 9})
    assert not allocations(module) and len(allocations(module, "arm")) == 1

    returned = Function("measure", ("n",), (Define("found"),), {"count": "found"})
    module = assert_runs(host(Call.make("measure", {"n": "n"}, {"count": "rows"}), Call.make("kernel", {"n": "rows"})),
                         returned, kernel(), symbols={"n": 1}, runtime={"found": 9, "rows": 9})
    assert [type(x) for x in module.function("main").body] == [Call, Allocate, Call]

    device = Function("device", ("n",), (Define("m"), Call.make("kernel", {"n": "m"})))
    with pytest.raises(WorkspaceError, match="no host function"):
        forward(Module.of("main", host(Call.make("device", {"n": "n"})), device, kernel()))
    computed = Function("device", ("n",), (Define("m", symbol("n") * 2), Call.make("kernel", {"n": "m"})))
    assert_runs(host(Call.make("device", {"n": "n"})), computed, kernel(), symbols={"n": 1})


def test_results_outputs_in_place_and_forwarded_tuples():
    """An output that is written in place is a parameter and no result; the names of two alike are never exchanged."""
    pair = Function("pair", ("out", "n"), (Define("a"), Define("b")), {"a": "a", "b": "b"},
                    requests=(Request.make("scratch", "n"),))
    inner = Function("inner", ("out", "n"), (Call.make("pair", {"out": "out", "n": "n"}, "both"),), {"*": "both"})
    outer = Function("outer", ("out", "n"), (Call.make("inner", {"out": "out", "n": "n"}, {"b": "x", "a": "y"}),),
                     {"right": "x", "left": "y"})
    main = host(Call.make("outer", {"out": "out", "n": "n"}, {"left": "l", "right": "r"}),
                parameters=("out", "n"), results={"left": "l", "right": "r"})
    module = assert_runs(main, outer, inner, pair, symbols={"n": 4}, runtime={"a": 1, "b": 2})
    assert module.origin("main", "left") == ("pair", "a") and module.origin("main", "right") == ("pair", "b")
    assert module.function("pair").signature == ("out", "n", "workspace")
    for name in ("pair", "inner", "outer", "main"):
        assert "workspace" not in module.results_of(name)


def test_alignments_of_records_beside_each_other():
    records = (
        Request.make("wide", 16, alignment=16, slots=3), Request.make("narrow", 2, alignment=2, slots=5),
        Request.make("odd", 7 * 2), Request.make("page", 5000, alignment=4096),
        Request.make("lines", 65, alignment=128),
    )
    for granule in (1, 16, 64, 128):
        layout = lay_out(records, granule=granule, guard=3)
        for r in records:
            for slot in range(int(str(r.slots))):
                assert layout.offset(r.name, slot=slot) % max(r.alignment, granule) == 0
        assert layout.stride() % 4096 == 0 and layout.address("page", 1, 2) % 4096 == 0
    for bad in (0, 3, -64, 2.5):
        with pytest.raises(WorkspaceError):
            Request.make("r", 1, alignment=bad)
    assert_runs(host(Call.make("kernel", {"n": "n"}, blocks=3, lanes=2)), kernel("kernel", *records), symbols={"n": 1})


def test_sizes_near_the_limits_of_integers():
    n = symbol("n")
    assert (4 * n).value({"n": 2**31 + 7}) == 2**33 + 28
    assert n.value({"n": 2**31 - 1}, bits=32) == 2**31 - 1
    for size, symbols, bits in ((n, {"n": 2**31}, 32), (4 * n, {"n": 2**61}, 64), (n * n, {"n": 2**32}, 64),
                                (Size.of(2**63), {}, 64), (n + 1, {"n": 2**63 - 1}, 64)):
        with pytest.raises(WorkspaceError, match=f"beyond {bits} bits"):
            size.value(symbols, bits)
    layout = lay_out([Request.make("a", n), Request.make("b", n)])
    assert layout.stride({"n": 2**61}) == 2**62
    for total in (lambda: layout.stride({"n": 2**62}), lambda: layout.total(2, {"n": 2**61}),
                  lambda: layout.total("n", {"n": 2**40})):
        with pytest.raises(WorkspaceError, match="beyond 64 bits"):
            total()
    assert [(n + 1).divided(4).value({"n": k}) for k in (0, 3, 4, 7)] == [1, 1, 2, 2]


def test_requests_of_nothing_and_code_that_never_runs():
    requests = Request.make("none", 0), Request.make("some", 10), Request.make("maybe", "n")
    module = assert_runs(host(Call.make("kernel", {"n": "n"})), kernel("kernel", *requests), symbols={"n": 0})
    layout = module.function("kernel").workspace
    assert layout.offset("none", symbols={"n": 0}) % 64 == 0 and layout.stride({"n": 0}) == 64
    empty = forward(Module.of("main", host(Call.make("kernel", {"n": "n"})), kernel("kernel", Request.make("none", 0))))
    assert size_of(empty, {"n": 1}) == 0

    dead = Function("dead", ("n",), (Call.make("huge", {"n": "n"}),))
    huge = kernel("huge", Request.make("scratch", 2**40))
    never = Call.make(("kernel", "huge"), {"n": "n"}, kind=BRANCH, taken=0)
    module = assert_runs(host(never), kernel(), dead, huge, symbols={"n": 5})
    assert size_of(module, {"n": 5}) == 64
    assert module.function("dead") is not None and module.function("huge").workspace is None

    declared = Function("library", ("n",), requests=None)
    with pytest.raises(WorkspaceError, match="does not say what workspace"):
        forward(Module.of("main", host(Call.make("library", {"n": "n"})), declared))
    with pytest.raises(WorkspaceError, match="no function 'nowhere'"):
        Module.of("main", host(Call.make("nowhere", {"n": "n"})))


def test_lifetimes_phases_double_buffers_and_state():
    phases = (Request.make("first", 640, (0, 0)), Request.make("second", 640, (1, 1)), Request.make("both", 64, (0, 1)))
    body = (Define("a"), Define("b"))
    module = assert_runs(host(Call.make("kernel", {"n": "n"})), Function("kernel", ("n",), body, requests=phases),
                         symbols={"n": 1}, runtime={"a": 1, "b": 2})
    assert size_of(module, {"n": 1}) == 640 + 64

    buffered = Function("body", ("i", "n"), (Call.make("kernel", {"n": "n"}),))
    for overlap, bytes in ((1, 64), (2, 128)):
        main = host(Call.make("body", {"n": "n"}, kind=LOOP, variable="i", overlap=overlap))
        module = assert_runs(main, buffered, kernel(), symbols={"n": 16}, trips={"i": 5})
        assert size_of(module, {"n": 16}) == bytes

    state = kernel("keeping", Request.make("state", 64, persistent=True, initialisation="zero once"))
    body = Function("body", ("i", "n"), (Call.make("keeping", {"n": "n"}), Call.make("kernel", {"n": "n"})))
    main = host(Call.make("body", {"n": "n"}, kind=LOOP, variable="i"), Call.make("kernel", {"n": "n"}))
    module = assert_runs(main, body, state, kernel(), symbols={"n": 16}, trips={"i": 4})
    assert size_of(module, {"n": 16}) == 3 * 64
    with pytest.raises(WorkspaceError, match="share what persists"):
        forward(Module.of("main", host(Call.make("body", {"n": "n"}, kind=LOOP, variable="i", overlap=2)), body, state,
                          kernel()))
    anew = host(Define("m"), Call.make("sized", {"n": "m"}), parameters=("i", "n"), name="body")
    sized = kernel("sized", Request.make("state", "n", persistent=True))
    with pytest.raises(WorkspaceError, match="in every iteration"):
        forward(Module.of("main", host(Call.make("body", {"n": "n"}, kind=LOOP, variable="i")), anew, sized))
    for wrong in ({"lifetime": (0, 1), "persistent": True}, {"lifetime": (3, 2)}, {"initialisation": "ones"},
                  {"persistent": True, "initialisation": "zero per call"}, {"sharing": "shared-write"},
                  {"sharing": "private", "synchronisation": "barrier"}, {"slots": 0}, {"name": ""}):
        with pytest.raises(WorkspaceError):
            Request.make(**{"name": "r", "bytes": 1, **wrong})


def test_the_last_block_may_hold_less_and_owns_a_whole_slice():
    extent = Extent(symbol("rows"), 16)
    assert [extent.valid(b, {"rows": 40}) for b in range(4)] == [16, 16, 8, 0]
    assert extent.blocks.value({"rows": 40}) == 3
    module = assert_runs(host(Call.make("kernel", {"n": 16}, blocks=extent.blocks), parameters=("rows",)), kernel(),
                         symbols={"rows": 40})
    assert size_of(module, {"rows": 40}) == size_of(module, {"rows": 48}) == 3 * 64


def random_module(rng):
    """Kernels, wrappers over them in three layers, and a host: calls of all kinds, sizes in one or two symbols."""
    def size():
        return rng.choice([1, 17, 64, 200, "n", "4*n + 3", "max(n, 100)", "n*m"])

    layers = [[], [], [], []]
    for k in range(3):
        requests = tuple(
            Request.make(f"r{i}", size(), rng.choice([None, (0, 0), (1, 2), (0, 1)]), slots=rng.choice([1, 2, "m"]),
                         alignment=rng.choice([4, 64, 256]))
            for i in range(rng.randint(0, 3))
        )
        channels = (Channel.make("pipe", size(), rng.choice([None, 64])),) if rng.random() < 0.4 else ()
        layers[0].append(Function(f"kernel{k}", ("n", "m"), (Define("t", symbol("n")),), requests=requests,
                                  channels=channels, blocks=Size.of(rng.choice([1, 2]))))
    for depth in (1, 2, 3):
        below = [f for layer in layers[:depth] for f in layer if f.parameters[0] != "i"]
        loops = [f for layer in layers[:depth] for f in layer if f.parameters[0] == "i"]
        for k in range(2):
            nodes = [Define("s", symbol("n") + 1)]
            for _ in range(rng.randint(1, 3)):
                arguments = {"n": rng.choice(["n", "s", 5]), "m": "m"}
                kind = rng.choice([CALL, SUBMIT, BRANCH, LOOP])
                if kind == LOOP and loops:
                    nodes.append(Call.make(rng.choice(loops).name, arguments, kind=LOOP, variable="i",
                                           overlap=rng.choice([1, 2])))
                elif kind == BRANCH:
                    nodes.append(Call.make(tuple(f.name for f in rng.sample(below, 2)), arguments, kind=BRANCH,
                                           taken=rng.choice([None, 0, 1])))
                else:
                    nodes.append(Call.make(rng.choice(below).name, arguments, kind=CALL if kind == LOOP else kind,
                                           blocks=rng.choice([None, 1, 2, "m"]), lanes=rng.choice([None, 2])))
            looped = rng.random() < 0.4
            layers[depth].append(Function(f"layer{depth}{k}", ("i", "n", "m") if looped else ("n", "m"), tuple(nodes)))
    tops = [f for layer in layers[1:] for f in layer]
    calls = []
    for f in rng.sample(tops, 3):
        arguments = {"n": "n", "m": "late" if calls and rng.random() < 0.5 else "m"}
        looped = {"kind": LOOP, "variable": "i"}
        options = looped if f.parameters[0] == "i" else {"kind": rng.choice([CALL, SUBMIT])}
        calls.append(Call.make(f.name, arguments, **options))
    main = host(calls[0], Define("late"), *calls[1:], parameters=("n", "m"))
    return (main, *(f for layer in layers for f in layer))


@pytest.mark.parametrize("seed", range(25))
def test_random_host_programs(seed):
    rng = random.Random(seed)
    assert_runs(*random_module(rng), symbols={"n": rng.randint(0, 80), "m": rng.randint(1, 3)}, runtime={"late": 2},
                chosen=rng.randint(0, 1))
