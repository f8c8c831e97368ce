"""Reasons in words: a rule by what it did to the program, beside its name where room is."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from eggshard.rewrites import default_rules


@cache
def _sentences() -> dict[str, str]:
    return {rule.name: rule.says for rule in default_rules()}


def sentence(reason: str) -> str:
    """What a rule did, by its name; other reasons, and rules of users, as they are."""
    return _sentences().get(reason, reason)


def sentences(reasons: Iterable[str]) -> str:
    """Reasons as `sentence` words them, each once."""
    return "; ".join(dict.fromkeys(map(sentence, reasons)))


def with_name(rule: str) -> str:
    """What a rule did, and its name."""
    said = sentence(rule)
    return f"{said} (rule {rule})" if said != rule else f"rule {rule}"
