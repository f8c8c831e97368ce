"""Annotated programs after jaxlib's steps, localised by us: run as the unsharded ones, where jaxlib fails as well."""

from __future__ import annotations

import pytest
from tests.shardy.local.programs import localised_by_peer, programs, ready
from tests.shardy.running import assert_runs_equal

from eggshard import shardy
from eggshard.errors import ShardingError

ANNOTATED = programs("annotated")
#: jaxlib's steps before fail on these, or leave what no step after them can take.
NOT_READY = {"named computation", "branches", "roll"}
PEER_FAILS = {"products", "loop", "calls", "gather", "dynamic updates", "batched product", "barrier"}
#: What jaxlib's pass makes of these is another program.
PEER_DIFFERS = {"largest values", "reduction from another start", "argmax", "random bits"}
ON_XLA = {"products", "scatter", "grouped convolution", "argmax", "random bits"}


@pytest.mark.parametrize("name", [name for name in ANNOTATED if name not in NOT_READY])
def test_programs_on_devices(name: str) -> None:
    text = ANNOTATED[name]
    whole = ready(text)
    assert not whole.failure
    local = shardy.transform(whole.text, "convert-global-to-local")
    if name == "barrier":  # nothing here runs tokens
        assert "%arg0, %arg1 : tensor<2x16xf32>, !stablehlo.token" in local
        return
    assert_runs_equal(whole.text, local, text, xla=name in ON_XLA)
    peer = localised_by_peer(whole.text)
    assert bool(peer.failure) == (name in PEER_FAILS)
    if name in PEER_DIFFERS:
        with pytest.raises(AssertionError, match="not equal|Not equal"):
            assert_runs_equal(whole.text, peer.text, text, nans=(False,))
    elif not peer.failure:
        assert_runs_equal(whole.text, peer.text, text, nans=(False,))


def test_branches_that_return_other_shardings_than_their_op_are_refused() -> None:
    with pytest.raises(ShardingError, match=r"stablehlo.return.*sharded as \[\{\"x\"\}\] and wanted as \[\{\"y\"\}\]"):
        shardy.transform(ready(ANNOTATED["branches"]).text, "convert-global-to-local")
