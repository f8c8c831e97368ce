"""Random programs through our explicit reshards and jaxlib's: the same text, or both refuse."""

from __future__ import annotations

from typing import Any

import pytest
from tests.shardy.peer import peer_text, run_peer
from tests.shardy.reshards.programs import Program

from eggshard import shardy
from eggshard.errors import EggshardError
from eggshard.shardy.catalogue import read_steps

#: What the values are like: shardings of one mesh; also with its devices in other orders; some open; some partial sums.
KINDS: dict[str, dict[str, Any]] = {
    "plain": {}, "orders": {"orders": 3}, "open": {"open_": 0.3, "annotate": 0.6}, "partial sums": {"unreduced": 0.05},
}
MODES = ("insert-explicit-reshards{enable-full-version=true}", "insert-explicit-reshards")


def agreeing(texts: list[str], passes: str) -> int:
    """How many modules both turn into the same text; AssertionError for one of which they make different things."""
    same = 0
    for text in texts:
        theirs = run_peer(text, peer_text(read_steps(passes)))
        try:
            ours = shardy.transform(text, passes)
        except EggshardError as error:
            assert theirs.failure, f"{error}\n{text}"
        else:
            assert ours == theirs.text, theirs.failure + text
            same += 1
    return same


def check(kind: str, passes: str, seeds: range) -> None:
    same = agreeing([Program(seed, **KINDS[kind]).text() for seed in seeds], passes)
    assert same >= (0.7 if kind == "partial sums" else 1) * len(seeds)


@pytest.mark.parametrize("passes", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_random_shardings(kind: str, passes: str) -> None:
    check(kind, passes, range(40 if kind == "plain" else 15))


@pytest.mark.slow
@pytest.mark.parametrize("passes", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_many_random_shardings(kind: str, passes: str) -> None:
    check(kind, passes, range(100, 500))


def propagated(seeds: range) -> list[str]:
    """Sparsely annotated programs after jaxlib's propagation, where that gets through."""
    texts = (Program(seed, ops=12, annotate=0.35, open_=0.6).text() for seed in seeds)
    return [found.text for text in texts if not (found := run_peer(text, "sdy-propagation-pipeline")).failure]


def test_axes_that_must_not_be_used_shard_nothing_but_within_ops() -> None:
    """jaxlib lets them stand where an op's shardings use them, and its own verifier refuses what it makes."""
    texts = [Program(seed, replicated=0.2).text() for seed in range(20)]
    failed = [text for text in texts if run_peer(text, peer_text(read_steps(MODES[0]))).failure]
    assert len(failed) > 5
    for text in failed:
        shardy.transform(text, MODES[0])
    assert agreeing([text for text in texts if text not in failed], MODES[0]) == len(texts) - len(failed)


@pytest.mark.parametrize("passes", MODES)
def test_propagated_shardings(passes: str) -> None:
    texts = propagated(range(20))
    assert len(texts) > 10 and agreeing(texts, passes) == len(texts)


@pytest.mark.slow
@pytest.mark.parametrize("passes", MODES)
def test_many_propagated_shardings(passes: str) -> None:
    texts = propagated(range(100, 300))
    assert agreeing(texts, passes) == len(texts)
