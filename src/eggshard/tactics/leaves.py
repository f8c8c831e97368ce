"""Which leaves of a function tactics mean: by their names, or by what they are in the step of a training loop."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from eggshard.errors import ShardingError
from eggshard.planner.choosing.narrowing import End

#: A glob over names, or whether an end is meant; None for those that a tactic means by itself.
Of = str | Callable[[End], bool] | None

#: Words in the names of leaves that are parameters, and of those that are the state of an optimizer, as flax and optax
#: name fields. The first of them in a name tells: ``args[0].opt_state[0].mu['params']['w']`` is state.
PARAMETERS = frozenset({"params", "parameters", "model"})
STATE = frozenset({"opt_state", "optimizer", "mu", "nu", "trace", "ema"})


def chosen_by(of: Of, ends: Sequence[End], usual: Sequence[End], what: str) -> Sequence[End]:
    """The ends that are meant: by ``of`` or, where that is None, the usual ones.

    what: the usual ones in words. ShardingError where there are none.
    """
    if of is None:
        found = list(usual)
    elif isinstance(of, str):
        glob = pattern(of)
        found = [end for end in ends if glob.fullmatch(end.name)]
    else:
        found = [end for end in ends if of(end)]
    if not found:
        names = ", ".join(end.name for end in ends)
        why = f"no leaf is meant by of={of!r}" if of is not None else (
            f"no leaf is {what}; say which ones are meant: of='args[0]*'")
        raise ShardingError(f"{why} (leaves: {names if len(names) < 300 else names[:300] + '...'})")
    return found


def pattern(glob: str) -> re.Pattern[str]:
    """The pattern of a glob, in which ``*`` alone is special: names have brackets."""
    return re.compile(".*".join(map(re.escape, glob.split("*"))))


def carried(ends: Sequence[End]) -> list[End]:
    """What is fed back: parameters and the state of an optimizer."""
    return [end for end in ends if end.carried]


def parameters(ends: Sequence[End]) -> list[End]:
    """What is fed back and is called so, or else is of the first argument that is fed back."""
    fed_back = carried(ends)
    words = {end: _word(end.name) for end in fed_back}
    if PARAMETERS.intersection(words.values()):
        return [end for end in fed_back if words[end] in PARAMETERS]
    first = _argument(fed_back[0].name) if fed_back else ""
    return [end for end in fed_back if _argument(end.name) == first and words[end] not in STATE]


def state(ends: Sequence[End]) -> list[End]:
    """What is fed back besides parameters."""
    known = {*parameters(ends)}
    return [end for end in carried(ends) if end not in known]


def batch(ends: Sequence[End]) -> list[End]:
    """The arguments that are not fed back, where others are, with the size of the first dimension that most of them
    have, or the largest if several sizes are as frequent."""
    found = [end for end in ends if not end.carried and not end.is_result and end.type.rank]
    sizes = Counter(end.type.shape[0] for end in found)
    if not sizes or not carried(ends):
        return []
    common = max(sizes, key=lambda size: (sizes[size], size))
    return [end for end in found if end.type.shape[0] == common]


def matrices(ends: Sequence[End]) -> list[End]:
    """Those of two dimensions or more, which hold nearly all bytes."""
    return [end for end in ends if end.type.rank > 1]


def _word(name: str) -> str:
    return next((word for word in re.findall(r"\w+", name) if word in PARAMETERS | STATE), "")


def _argument(name: str) -> str:
    """The argument that a leaf is of, such as ``args[0]``."""
    found = re.match(r"\w+\[[^]]*\]", name)
    return found[0] if found else name
