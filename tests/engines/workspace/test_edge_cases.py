"""Edge cases of workspaces: alignments, sizes near the limits of integers, requests of nothing, wrong requests."""

import pytest

from eggshard.engines.workspace.layout import lay_out
from eggshard.engines.workspace.requests import Request
from eggshard.engines.workspace.sizes import Size, symbol
from eggshard.errors import WorkspaceError


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


def test_requests_of_nothing():
    layout = lay_out([Request.make("none", 0), Request.make("some", 10), Request.make("maybe", "n")])
    assert layout.offset("none", symbols={"n": 0}) % 64 == 0 and layout.stride({"n": 0}) == 64
    assert lay_out([Request.make("none", 0)]).stride() == 0


def test_requests_that_contradict_themselves():
    for wrong in ({"lifetime": (0, 1), "persistent": True}, {"lifetime": (3, 2)}, {"initialisation": "ones"},
                  {"persistent": True, "initialisation": "zero per call"}, {"sharing": "shared-write"},
                  {"sharing": "private", "synchronisation": "barrier"}, {"slots": 0}, {"name": ""}):
        with pytest.raises(WorkspaceError):
            Request.make(**{"name": "r", "bytes": 1, **wrong})
