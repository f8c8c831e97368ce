"""The peer that moves halos by hand-ordered passes: the wheel ``enzyme_ad``, and XLA's flag for its communications.

`peer` runs three settings of the wheel's passes on a program whose shardings Shardy has propagated, and compiles each
with and without ``xla_enable_enzyme_comms_opt``. Nothing here is measured beforehand.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from bench.peers import PeerResult, counted_ops
from bench.worker import Worker
from eggshard.hlo.collectives import CollectiveCount

FLAG = "xla_enable_enzyme_comms_opt"
"""XLA's debug option, off by default: communication rewrites and the custom calls that the passes emit."""

INTERPRETER = "EGGSHARD_BENCH_ENZYME_PYTHON"
"""Environment variable: an interpreter that has the wheel, where this one has not."""

SECONDS = 60
"""What one pipeline, or one compilation, may take."""

DEVICES = 128
"""Virtual devices that XLA compiles for at most."""


def named(*patterns: str) -> str:
    """The passes that apply the wheel's rewrite patterns of these names greedily."""
    given = ";".join(patterns)
    return f"enzyme-hlo-generate-td{{patterns={given}}},transform-interpreter,enzyme-hlo-remove-transform"


_RECOGNIZE = named(
    "recognize_extend", "recognize_wrap", "recognize_rotate", "recognize_updatewithoutcorners", "dusdus_to_dusextend"
)
_LOWER = named(
    "lower_extend", "lower_wrap", "lower_rotate", "lower_multirotate", "lower_multislice", "lower_updatewithoutcorners"
)
_ON = (
    "rotate_spmd", "concat_to_dus", "extend_to_pad_comm2", "updatewithoutcorners_to_select", "multirotate_custom_call",
    "multislice_custom_call", "wrap_custom_call",
)  # fmt: skip
_OFF = (
    "rotate_comm", "rotate_to_pad_comm", "wrap_comm", "wrap_to_pad_comm", "wrap_to_rotate", "extend_comm",
    "extend_to_pad_comm", "extend_dus_like", "dus_to_pad_comm", "dus_to_pad_manual_comp_comm", "dus_of_concat_slices",
    "concat_two_operands_comm", "concat_two_dus_like", "concat_to_pad_comm", "concat_to_dus_any", "concat_to_rotatepad",
    "periodic_concat", "reorder_associative", "multirotate_spmd",
)  # fmt: skip
_REACTANT = " ".join([*(f"{option}=1" for option in _ON), *(f"{option}=0" for option in _OFF)])

PIPELINES: dict[str, str] = {
    "stock": f"{_RECOGNIZE},{_LOWER},canonicalize,cse",
    "defaults": f"{_RECOGNIZE},optimize-communication,{_LOWER},canonicalize,cse",
    "Reactant": ",".join([
        _RECOGNIZE,
        named("recognize_multirotate", "recognize_multislice"),
        f"optimize-communication{{{_REACTANT}}}",
        _LOWER,
        f"optimize-communication{{{_REACTANT}}}",
        _LOWER,
        "canonicalize,cse",
    ]),
}
"""Recognise and lower again; with the passes' default options; with the options that Reactant ships."""


@dataclass(frozen=True)
class EnzymeResult:
    """What the passes make of a program, per setting; a setting with the flag is named ``NAME+flag``."""

    settings: dict[str, PeerResult] = field(default_factory=dict)
    reason: str = ""
    """Why there is nothing: the wheel is not installed, or the program cannot be read."""

    @property
    def least(self) -> tuple[str, float] | None:
        """The setting with the fewest bytes, and these."""
        known = [(r.wire_bytes, name) for name, r in self.settings.items() if r.wire_bytes is not None]
        return min(known)[::-1] if known else None

    @property
    def note(self) -> str:
        """Why there is no figure: the reason for all, or the first setting's."""
        if self.reason or self.least is not None:
            return self.reason
        return next((f"{name}: {r.reason}" for name, r in self.settings.items() if r.reason), "")

    def json(self) -> dict[str, Any]:
        """Bytes or reason per setting."""
        return {
            name: r.reason if r.count is None else {"wire_bytes": r.wire_bytes, "collectives": r.count.by_kind}
            for name, r in self.settings.items()
        }


_xla = Worker("bench.xla_worker", SECONDS, {"JAX_NUM_CPU_DEVICES": str(DEVICES)})
atexit.register(_xla.close)


def plain(text: str) -> PeerResult:
    """XLA as it is, in a process of its own."""
    return _compiled("xla", text, {})


def flagged(text: str) -> PeerResult:
    """XLA with its flag for Enzyme's communications, in a process of its own."""
    return _compiled("xla+flag", text, {FLAG: True})


@cache
def interpreter() -> str | None:
    """An interpreter that has the wheel: the one that `INTERPRETER` names, or this one."""
    for path in (os.environ.get(INTERPRETER), sys.executable):
        if path and passes(path, "module {}", ()) is not None:
            return path
    return None


def peer(text: str) -> EnzymeResult:
    """All settings on a module's text. Equal modules are compiled once."""
    python = interpreter()
    if python is None:
        return EnzymeResult(reason="not installed")
    inlined = (passes(python, text, ("inline",)) or [{"error": "no answer"}])[0]
    shardings = _xla.ask({"propagate": inlined["text"]}) if "text" in inlined else inlined
    if "text" not in shardings:
        return EnzymeResult(reason=shardings["error"])
    answers = passes(python, shardings["text"], tuple(PIPELINES.values())) or []
    known: dict[tuple[str, bool], PeerResult] = {}
    settings: dict[str, PeerResult] = {}
    for name, answer in zip(PIPELINES, answers, strict=False):
        for flag in (False, True):
            setting = f"{name}+flag" if flag else name
            if "error" in answer:
                settings[setting] = PeerResult(setting, None, 0.0, answer["error"])
                continue
            key = answer["text"], flag
            if key not in known:
                known[key] = _compiled(setting, answer["text"], {FLAG: True} if flag else {})
            settings[setting] = known[key]
    return EnzymeResult(settings, "" if settings else "the passes took too long")


def passes(python: str, text: str, pipelines: Sequence[str]) -> list[dict[str, str]] | None:
    """The module after each pipeline; None if the interpreter lacks the wheel or takes too long."""
    request = json.dumps({"text": text, "pipelines": list(pipelines), "seconds": SECONDS})
    script = Path(__file__).with_name("enzyme_passes.py")
    try:
        done = subprocess.run(
            [python, str(script)], input=request, capture_output=True, text=True, timeout=SECONDS * (1 + len(pipelines))
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    answers: list[dict[str, str]] | None = json.loads(done.stdout) if done.returncode == 0 else None
    return answers


def _compiled(setting: str, text: str, flags: dict[str, bool]) -> PeerResult:
    answer = _xla.ask({"text": text, "flags": flags})
    if "error" in answer:
        return PeerResult(setting, None, 0.0, answer["error"])
    count = CollectiveCount(counted_ops(answer["ops"]), answer["devices"])
    return PeerResult(setting, count, answer["seconds"])
