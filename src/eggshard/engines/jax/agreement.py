"""Agreement of the processes of one JAX program on one plan: they compare fingerprints, or adopt what one process made.

Messages go through the store of `jax.distributed` and not through devices: the processes need not be all of them, what
they wait for ends, and a process that holds another plan is found before its devices wait for those of others. This
file is the only one that uses that store, which JAX does not document.
"""

from __future__ import annotations

import hashlib
import json
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import jax
from jax._src import distributed

import eggshard.errors as errors
from eggshard.errors import EngineError
from eggshard.plan.identity import plan_fingerprint, program_fingerprint
from eggshard.plan.serialization import from_json, to_json
from eggshard.version import __version__

if TYPE_CHECKING:
    from eggshard.plan.record import PlanRecord

#: Seconds that processes wait for each other's plans: planning takes some on one and not yet on another.
PATIENCE = 600.0

T = TypeVar("T")

#: Per group of processes how often they have compared plans, and per program how often something was made of it for
#: several.
_compared: Counter[tuple[int, ...]] = Counter()
_made: Counter[str] = Counter()


def processes_of(devices: Iterable[Any]) -> tuple[int, ...]:
    """The processes that some devices belong to."""
    return tuple(sorted({device.process_index for device in devices}))


def agree(
    plan: PlanRecord, processes: Iterable[int] | None = None, timeout: float = PATIENCE, devices: Iterable[Any] = ()
) -> None:
    """EngineError on each of these processes (default: all) unless all hold this plan, within so many seconds.

    ``devices``: in which order the plan's mesh takes them, which is to be the same as well.
    """
    if distributed.global_state.client is None:
        return  # the only process, whose devices need not be looked for
    members = tuple(range(jax.process_count())) if processes is None else tuple(processes)
    me = jax.process_index()
    if len(members) < 2 or me not in members:
        return
    facts = {
        "name": plan.program.name, "mesh": str(plan.mesh), "program": program_fingerprint(plan.program)[:16],
        "device program": plan_fingerprint(plan)[:16], "devices": str([d.id for d in devices]),
        "eggshard": __version__, "jax": jax.__version__,
    }
    round_ = f"eggshard/agree/{_short(str(members))}/{_compared[members]}"
    _compared[members] += 1
    leader, end = members[0], time.monotonic() + timeout
    if me != leader:
        _put(f"{round_}/{me}", json.dumps(facts).encode())
        verdict = _get(f"{round_}/verdict", end + 10 - time.monotonic())
        problem = _missing([leader], timeout) if verdict is None else verdict.decode()
    else:
        found = {p: _get(f"{round_}/{p}", end - time.monotonic()) for p in members[1:]}
        problem = _verdict(facts, {p: None if text is None else json.loads(text) for p, text in found.items()}, leader,
                           timeout)
        _put(f"{round_}/verdict", problem.encode())
    if problem:
        raise EngineError(f"{plan.program.name}: {problem}")


def _verdict(facts: dict[str, str], others: dict[int, dict[str, str] | None], leader: int, timeout: float) -> str:
    """What is wrong with the plans that processes hold; empty if nothing is."""
    silent = [p for p, held in others.items() if held is None]
    if silent:
        return _missing(silent, timeout)
    for process, held in others.items():
        differing = [name for name, value in facts.items() if held and held.get(name) != value]
        if held and differing:
            shown = "; ".join(f"{name} {held.get(name)} there, {facts[name]} here" for name in differing)
            return (
                f"process {process} holds another plan than process {leader} ({shown}); plan on one and hand its JSON "
                "to all, or call the same functions in the same order everywhere"
            )
    return ""


def _missing(processes: list[int], timeout: float) -> str:
    listed = f"process{'es' if len(processes) > 1 else ''} {', '.join(map(str, processes))}"
    return (
        f"{listed} did not say within {timeout:g} s which plan it holds; it has ended, or does something else: every "
        "process of the mesh must make the same calls"
    )


def planned_once(
    devices: Iterable[Any], text: str, make: Callable[[], PlanRecord], timeout: float = PATIENCE
) -> PlanRecord:
    """The plan that the first of several processes makes for a program's text (`made_once`)."""
    return made_once(devices, "plan", text, make, lambda plan: to_json(plan, reasons=False), from_json, timeout)


def made_once(
    devices: Iterable[Any], what: str, text: str, make: Callable[[], T], write: Callable[[T], str],
    read: Callable[[str], T], timeout: float = PATIENCE,
) -> T:
    """What the first of several processes makes of a program's text; all of them ask for it.

    The clock ends some searches, so that two processes may find two plans. write, read: to a text and back, for the
    other processes. EngineError where nothing comes, and the first process's own error where it could not make it.
    """
    members, me = processes_of(devices), jax.process_index()
    if len(members) < 2 or me not in members:
        return make()
    name = _short(f"{members} {what} {text}")
    key = f"eggshard/{what}/{name}/{_made[name]}"
    _made[name] += 1
    if me != members[0]:
        found = _get(key, timeout)
        if found is None:
            raise EngineError(
                f"no {what} came from process {members[0]} within {timeout:g} s, which plans for processes {members}; "
                "every process of the mesh must make the same calls"
            )
        kind, _, body = zlib.decompress(found).decode().partition("\n")
        if kind:
            raise getattr(errors, kind, EngineError)(f"process {members[0]}, which plans for all: {body}")
        return read(body)
    try:
        made = make()
    except Exception as error:
        _put(key, zlib.compress(f"{type(error).__name__}\n{error}".encode()))
        raise
    _put(key, zlib.compress(f"\n{write(made)}".encode()))
    return made


def _put(key: str, value: bytes) -> None:
    """Leave something in the store that all processes reach."""
    distributed.global_state.client.key_value_set_bytes(key, value or b"\0")


def _get(key: str, seconds: float) -> bytes | None:
    """What some process put there; None if none does within so many seconds."""
    client: Any = distributed.global_state.client
    try:
        found: bytes = client.blocking_key_value_get_bytes(key, max(1, int(1000 * seconds)))
    except jax.errors.JaxRuntimeError as error:
        if "DEADLINE_EXCEEDED" not in str(error):
            raise EngineError(f"the processes of this program cannot reach each other: {error}") from None
        return None
    return b"" if found == b"\0" else found


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]
