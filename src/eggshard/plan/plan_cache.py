"""Plans on disk: what was planned once is read the next time (`eggshard.config.plan_cache`).

A plan is kept in a file named by a digest of all that it depends on: the program, the mesh, shardings, prices, rules,
limits, and this package's own source. Any number of processes may read, write and remove files at once: each is written
under another name, and then renamed. What a file says is believed only if its digest and its name agree with it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from eggshard.errors import EggshardError, EggshardWarning, ProgramError
from eggshard.extras import installed
from eggshard.plan.identity import program_fingerprint, versions
from eggshard.plan.json_values import decode, encode
from eggshard.plan.record import PlanRecord
from eggshard.program.program import Program
from eggshard.settings import LOGGER, config

#: What a kept plan's text begins with.
_KIND = "eggshard kept plan"
#: What is kept of a plan: the rest is what it was asked for.
_FIELDS = ("device_program", "input_placements", "output_placements", "search", "proved")
#: Packages whose versions may change what is found.
_SEARCHED_WITH = ("egglog", "highspy", "networkx", "numpy")
#: The part of its limit to which a folder that has outgrown it is pruned.
_LEFT = 0.9
#: Seconds after which a file that no process has finished is left behind.
_ABANDONED = 3600.0
_NAME = re.compile(r"[0-9a-f]{64}\.json")


@dataclass(frozen=True)
class Kept:
    """A plan in the cache. used: when it was written or read last, in seconds since the epoch."""

    path: Path
    bytes: int
    used: float

    @property
    def key(self) -> str:
        return self.path.stem


class PlanCache:
    """A folder of plans, of which those not used for longest are removed where they take more than ``limit`` bytes."""

    def __init__(self, folder: str | Path, limit: int):
        self.folder, self.limit = Path(folder).expanduser(), limit

    @classmethod
    def configured(cls) -> PlanCache | None:
        """The cache that `eggshard.config` names; None where it names none."""
        folder = config.plan_cache
        return cls(folder, config.plan_cache_bytes) if folder else None

    def find(self, key: str, program: Program, cost_model: Any) -> PlanRecord | None:
        """The plan kept under a key, of this program under this model; None where there is none.

        A file that does not say what was written is removed, with a warning.
        """
        path = self._path(key)
        try:
            text = path.read_text(encoding="utf-8")
        except OSError:
            return None
        try:
            kept = {name: decode(value) for name, value in _content(text, key).items()}
            found = PlanRecord(program=program, cost_model=cost_model, **kept)
        except Exception as error:
            reason = str(error) if isinstance(error, EggshardError) else repr(error)
            warnings.warn(f"the kept plan {path} is not as it was written, and is removed: {reason}", EggshardWarning,
                          stacklevel=4)
            _remove(path)
            return None
        with suppress(OSError):  # it was removed, or is another user's
            os.utime(path)
        return found

    def keep(self, key: str, plan: PlanRecord) -> None:
        """Write a plan. Where that fails, because of the disk or of what the plan holds, nothing is kept: a log line
        says so."""
        try:
            text = _sealed(key, {name: encode(getattr(plan, name)) for name in _FIELDS})
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(".new", dir=self.folder)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(name, self._path(key))
        except (OSError, ProgramError, RecursionError) as error:
            LOGGER.warning("the plan of %s is not kept: %s", plan.program.name, error)
            return
        self.prune()

    def plans(self) -> list[Kept]:
        """What is kept, what was used last first."""
        found = []
        for path in self._files():
            if _NAME.fullmatch(path.name):
                try:
                    state = path.stat()
                except OSError:  # another process removed it
                    continue
                found.append(Kept(path, state.st_size, state.st_mtime))
        return sorted(found, key=lambda kept: (-kept.used, kept.path.name))

    def prune(self, limit: int | None = None) -> list[Kept]:
        """Remove plans until the others take no more than ``limit`` bytes, and files left behind; the plans removed.

        limit: by default the cache's own, and where it is exceeded a tenth less, so that not every plan prunes.
        """
        plans = self.plans()
        total = sum(kept.bytes for kept in plans)
        allowed = limit if limit is not None else self.limit if total <= self.limit else _LEFT * self.limit
        removed = []
        while plans and total > allowed:
            oldest = plans.pop()
            _remove(oldest.path)
            total -= oldest.bytes
            removed.append(oldest)
        for path in self._files():
            with suppress(OSError):
                if path.suffix == ".new" and time.time() - path.stat().st_mtime > _ABANDONED:
                    _remove(path)
        return removed

    def verify(self) -> Iterator[tuple[Kept, str]]:
        """What is kept, each with what is wrong with it; "" for nothing."""
        for kept in self.plans():
            try:
                for value in _content(kept.path.read_text(encoding="utf-8"), kept.key).values():
                    decode(value)
                yield kept, ""
            except FileNotFoundError:
                continue
            except Exception as error:
                yield kept, str(error) if isinstance(error, EggshardError) else repr(error)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def _files(self) -> list[Path]:
        try:
            return list(self.folder.iterdir())
        except OSError:
            return []


def _remove(path: Path) -> None:
    """Remove a file that another process may have removed, or that is another user's and stays."""
    with suppress(OSError):
        path.unlink()


def _sealed(key: str, content: dict[str, Any]) -> str:
    """What is kept under a key, as text: a digest, and JSON."""
    body = json.dumps({"key": key, **content})
    return f"{_KIND} {_digest(body)}\n{body}"


def _content(text: str, key: str) -> dict[str, Any]:
    """What was kept under a key, encoded; ProgramError where the text says something else."""
    head, _, body = text.partition("\n")
    if head != f"{_KIND} {_digest(body)}":
        raise ProgramError("its digest is another one")
    content: dict[str, Any] = json.loads(body)
    if content.pop("key", None) != key:
        raise ProgramError("it is named after another plan")
    return content


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def key_of(program: Program, facts: Mapping[str, Any]) -> str | None:
    """The digest of all that a plan depends on; None where something cannot be written down: in ``facts`` a cost model
    of the user's own, or a program that is nested too deeply."""
    try:
        whole = {"program": program_fingerprint(program), "versions": versions(program), "facts": encode(dict(facts)),
                 "source": _source(), "searched with": _searched_with()}
        return _digest(json.dumps(whole, sort_keys=True))
    except (ProgramError, RecursionError):
        return None


@cache
def _source() -> str:
    """The digest of this package's source: a version may be of many states of it."""
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def _searched_with() -> list[str]:
    return [installed(package) for package in _SEARCHED_WITH]
