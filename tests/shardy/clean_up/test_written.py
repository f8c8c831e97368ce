"""The clean-up passes leave the text that jaxlib's leave, on modules written by hand; both refuse the same ones."""

from __future__ import annotations

import pytest
from tests.shardy.clean_up.features import FEATURES
from tests.shardy.clean_up.written import WRITTEN
from tests.shardy.differential import canonical
from tests.shardy.peer import peer_text, run_peer

from eggshard import shardy
from eggshard.errors import EggshardError
from eggshard.shardy.catalogue import read_steps

#: Modules that crash jaxlib's passes: it looks into the body of a function that has none, or for a function.
CRASHING = ("a declaration", "no functions")
ABORTING = "several functions, none of them main"


@pytest.mark.parametrize("name", FEATURES)
def test_agrees_on_written_modules(name: str) -> None:
    agreeing = 0
    for kind, text in WRITTEN.items():
        try:
            ours = shardy.transform(text, name)
        except EggshardError as error:
            assert "\n" not in str(error)
            assert kind == ABORTING or run_peer(text, peer_text(read_steps(name))).failure, f"{kind}: {error}"
            continue
        if kind in CRASHING:
            assert ours == canonical(ours)
            continue
        theirs = run_peer(text, peer_text(read_steps(name)))
        assert ours == theirs.text, f"{kind}: {theirs}\n{ours}"
        agreeing += 1
    assert agreeing >= 10


@pytest.mark.slow
@pytest.mark.parametrize("kind, name", [
    ("a declaration", "close-shardings"), ("a declaration", "inline-meshes"),
    ("no functions", "propagate-to-func-results"), (ABORTING, "remove-sub-axes-in-input-output-shardings"),
])  # fmt: skip
def test_jaxlib_crashes(kind: str, name: str) -> None:
    assert run_peer(WRITTEN[kind], peer_text(read_steps(name))).failure
