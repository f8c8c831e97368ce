"""A case by our passes and by jaxlib's: the text, the file's CHECK lines, the shardings, the values, the bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache

from jaxlib.mlir import ir
from tests.shardy.peer import Peer, run_peer
from tests.shardy.running import assert_runs_equal

from bench.lit.cases import Case, Run
from eggshard import shardy
from eggshard.errors import EggshardError, ProgramError
from eggshard.program.axes import union
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.catalogue import PASSES
from eggshard.shardy.module import MOVING, parsed, rank
from eggshard.shardy.reshards.collectives.kinds import Collective
from eggshard.shardy.wire_bytes import module_bytes

#: What a case is, from best to worst; those of `FAILURES` are to be none.
OUTCOMES = (
    "same text", "as checked", "same shardings", "same values", "fewer bytes", "ours alone", "both refuse", "unread",
    "differs", "more bytes", "refused", "wrong",
)  # fmt: skip
FAILURES = ("differs", "more bytes", "refused", "wrong")
_PIPELINE = re.compile(r"sdy-([\w-]+)-pipeline")
#: MLIR's own pass of that name applies what Shardy's ops simplify to; ours are two.
_CANONICALIZE = "canonicalize-reshards,canonicalize-collectives"
_SUMMING = ("sdy.all_reduce", "sdy.reduce_scatter")
_LOCAL = "convert-global-to-local"
#: What brings a module that is sharded throughout to shards, whatever of it is done.
_FINISH = f"insert-explicit-reshards{{enable-full-version=true}},resolve-permutation-factors,reshard-to-collectives,\
pad-for-divisibility,resolve-single-device-sharding,{_LOCAL}"


@dataclass(frozen=True)
class Verdict:
    """What came of a case, and why: an error, or what differs."""

    outcome: str
    why: str = ""


def our_steps(run: Run) -> list[str]:
    """A run's passes by our names, pipelines as their passes. ProgramError for those that there are not."""
    steps: list[str] = []
    for name, options in run.passes:
        braced = f"{{{options}}}" if options else ""
        if found := _PIPELINE.fullmatch(name):
            steps += shardy.steps_of(found[1] + braced)
        elif name == "canonicalize":
            steps.append(_CANONICALIZE)
        else:
            steps.append(name + braced)
    return steps


def peer_passes(run: Run) -> str:
    """A run's passes as jaxlib's pass manager reads them, each on the op that it is for."""
    parts = []
    for name, options in run.passes:
        text = name + (f"{{{options}}}" if options else "")
        ours = PASSES.get(name.removeprefix("sdy-"))
        parts.append(f"func.func({text})" if ours is not None and ours.on == "func.func" else text)
    return ",".join(parts)


def judge(case: Case, run: Run) -> Verdict:
    """Run a case both ways. Errors other than ours that our passes end with are refusals, and say their class."""
    theirs = run_peer(case.code, peer_passes(run))
    try:
        ours = shardy.transform(case.code, ",".join(our_steps(run)))
    except EggshardError as error:
        return _refused(case, run, theirs, str(error))
    except Exception as error:
        return Verdict("refused", f"{type(error).__name__}: {error}")
    if not theirs.failure and ours == theirs.text:
        return Verdict("same text")
    if case.checked(ours, run):
        return Verdict("as checked", theirs.failure)
    if theirs.failure:
        return Verdict("ours alone", theirs.failure)
    return _compared(case, run, ours, theirs.text)


def _refused(case: Case, run_: Run, theirs: Peer, why: str) -> Verdict:
    if not theirs.failure:
        local = any(_LOCAL in name for name, _ in run_.passes)
        text = _named_main(case.code, case.function)
        if local and _Ends.of(_named_main(theirs.text, case.function), text, local).wrong(text):
            return Verdict("both refuse", f"{why}; jaxlib's is wrong")
        return Verdict("refused", why)
    return Verdict("both refuse" if parses(case.code) else "unread", why)


@cache
def parses(text: str) -> bool:
    """Whether jaxlib reads a module; syntax that is newer, and what a test shows to be invalid, it does not."""
    return not run_peer(text, "").failure


def _compared(case: Case, run: Run, ours: str, theirs: str) -> Verdict:
    local = any(_LOCAL in name for name, _ in run.passes)
    if not local and shardings(ours) == shardings(theirs):
        return Verdict("same shardings")
    text = _named_main(case.code, case.function)
    try:
        ends = [_Ends.of(_named_main(t, case.function), text, local) for t in (ours, theirs)]
    except EggshardError as error:
        return Verdict("differs", f"not brought to shards: {error}")
    wrong = [end.wrong(text) for end in ends]
    if wrong[0]:
        return Verdict("differs" if wrong[0].startswith("not run") else "wrong", wrong[0])
    mine, peers = (wire_bytes(end.local) for end in ends)
    if mine is None or peers is None or wrong[1]:
        return Verdict("same values", wrong[1] and f"jaxlib's: {wrong[1]}")
    if mine > peers + 0.5:
        return Verdict("more bytes", f"{mine:.0f} bytes, jaxlib's {peers:.0f}")
    return Verdict("fewer bytes" if mine < peers - 0.5 else "same values")


def shardings(text: str) -> list[str]:
    """Every stated sharding of a module, in the order of its ops."""
    out = []
    with parsed(text) as module:
        for op in module.walk():
            if op.name == "func.func":
                out += [str(s) for s in module.argument_shardings(op) + module.function_result_shardings(op)]
            out.append(f"{op.name} {[str(s) for s in module.result_shardings(op) or ()]}")
    return out


def _named_main(text: str, function: str) -> str:
    return re.sub(rf"@{re.escape(function)}\b", "@main", text)


@dataclass(frozen=True)
class _Ends:
    """The program of a device that a module comes to, and a module that says where arguments and results lie."""

    local: str
    boundary: str

    @classmethod
    def of(cls, after: str, before: str, local: bool) -> _Ends:
        """Of a module after passes, which may have brought it to shards; its functions' ends are made even else."""
        if local:
            return cls(after, _marked(before))
        even = shardy.transform(after, "update-non-divisible-input-output-shardings")
        return cls(shardy.transform(even, _FINISH), _marked(even))

    def wrong(self, text: str) -> str:
        """What is wrong: results are others than the module's, or why it cannot be run."""
        try:
            assert_runs_equal(self.boundary, self.local, original=text, nans=(False,))
        except AssertionError as error:
            return str(error).partition("\n")[0] or "another result"
        except Exception as error:
            return f"not run: {type(error).__name__}: {error}"
        return ""


def _marked(text: str) -> str:
    """The module with arguments that say what they are partial sums over, where these are summed and do not say it."""
    with parsed(text) as module:
        for op in module.walk(*_SUMMING):
            reduction = Collective.read(op)
            assert reduction is not None
            value = op.operands[0]
            while not isinstance(value, ir.BlockArgument) and value.owner.operation.name in (*MOVING, *_SUMMING):
                value = value.owner.operation.operands[0]
            if not isinstance(value, ir.BlockArgument) or value.owner.owner.operation.name != "func.func":
                continue
            given = module.sharding(value) or TensorSharding.closed(reduction.to.mesh, [()] * rank(value))
            over = tuple(a for axes in (reduction.axes, *reduction.dims) for a in axes)
            held = union(given.sharding.unreduced, over, module.mesh(given).axes)
            module.set_sharding(value, replace(given, sharding=replace(given.sharding, unreduced=held)))
        return module.text()


def wire_bytes(text: str) -> float | None:
    """Bytes that the busiest device receives in what a module comes to on shards."""
    try:
        with parsed(text) as module:
            return module_bytes(module).busiest
    except (EggshardError, ProgramError):
        return None
