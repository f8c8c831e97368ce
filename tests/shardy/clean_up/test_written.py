"""The clean-up passes leave the text that jaxlib's leave, on modules written by hand; both refuse the same ones."""

from __future__ import annotations

import pytest
from tests.shardy.clean_up.features import FEATURES
from tests.shardy.clean_up.written import WRITTEN

from eggshard import shardy
from eggshard.errors import EggshardError
from eggshard.shardy.catalogue import read_steps
from eggshard.shardy.passes import peer_text
from eggshard.shardy.peer import run_peer


#: Modules that crash jaxlib's passes: it looks into the body of a function that has none, or for a function.
CRASHING = ("a declaration", "no functions")


@pytest.mark.parametrize("name", FEATURES)
def test_agrees_on_written_modules(name: str) -> None:
    agreeing = 0
    for kind, text in WRITTEN.items():
        theirs = run_peer(text, peer_text(read_steps(name)))
        try:
            ours = shardy.transform(text, name)
        except EggshardError as error:
            assert theirs.failure and "\n" not in str(error), f"{kind}: {error}"
            continue
        agreeing += ours == theirs.text
        assert ours == theirs.text or (theirs.failure and kind in CRASHING), f"{kind}: {theirs}\n{ours}"
    assert agreeing >= 10
