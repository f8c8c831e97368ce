"""The field codes of Enzyme-JAX's communication tests: planned, beside XLA and the pipelines that the tests are of.

Each function of a file is a program. Ops of Enzyme's own dialect are lowered by the wheel ``enzyme_ad`` first, so that
everybody gets the same slices and concatenations; without the wheel (`bench.enzyme`) such programs have no peers.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jax.interpreters import mlir as jax_mlir
from jaxlib.mlir import ir
from rich.table import Table
from tests.shardy.running import inputs_of, meaning_of

import eggshard
from bench import enzyme
from bench.lit.programs import SECONDS, devices_of, partitioned
from eggshard.costmodel import WireBytes
from eggshard.errors import EggshardError
from eggshard.limits import Limits
from eggshard.ops.evaluate import evaluate_region

#: The folder of the tests in Enzyme-JAX's repository.
FOLDER = "test/lit_tests"
OUTCOMES = ("better", "equal", "worse", "wrong", "refused", "no peer")
FAILURES = ("worse", "wrong", "refused")
#: Bytes of all a program's tensors up to which its plan is run; the plans of larger fields are proved.
MOST_BYTES = 2**28

_DIALECT = "enzymexla."
_LOWER = enzyme.named(
    "lower_extend", "lower_wrap", "lower_rotate", "lower_multirotate", "lower_multislice", "lower_multipad",
    "lower_updatewithoutcorners",
)  # fmt: skip


@dataclass(frozen=True)
class Field:
    """A function of a file. wire: bytes of the busiest device by each peer; ours: by the plan, None where refused.

    checked: whether the plan was run, or proved, or neither (``""``); why: what is wrong, or why there is no peer.
    """

    name: str
    outcome: str
    ours: float | None = None
    wire: dict[str, float] = field(default_factory=dict)
    checked: str = ""
    why: str = ""

    @property
    def least(self) -> tuple[float, str] | None:
        """The fewest bytes of a peer, and whose these are."""
        return min(((amount, who) for who, amount in self.wire.items()), default=None)


def functions(path: Path) -> Iterator[tuple[str, str]]:
    """Names and texts of a file's functions that are sharded: each as ``main``, with the meshes that it names.

    MLIRError for a file with ops of dialects that are unknown here and not written generically.
    """
    code = re.sub(r"//.*", "", path.read_text())
    with jax_mlir.make_ir_context() as context, ir.Location.unknown():
        context.allow_unregistered_dialects = True
        module = ir.Module.parse(code)
        listed = list(module.body.operations)
        modules = [list(op.regions[0].blocks[0]) for op in listed if op.operation.name == "builtin.module"] or [listed]
        for number, ops in enumerate(modules):
            meshes = [str(op) for op in ops if op.operation.name == "sdy.mesh"]
            for op in (op for op in ops if op.operation.name == "func.func"):
                name, text = ir.StringAttr(op.attributes["sym_name"]).value, str(op)
                used = [mesh for mesh in meshes if re.search(rf"{re.escape(mesh.split()[1])}\b", text)]
                text = "\n".join([*used, re.sub(rf'@({re.escape(name)}\b|"{re.escape(name)}")', "@main", text)])
                if "sdy.sharding" in text and used:
                    yield f"{path.name}:{name}" + (f"#{number}" if number else ""), text


def judged(root: Path, only: str = "") -> Iterator[Field]:
    """The sharded functions of the files below a folder; files that cannot be read are left out."""
    for path in sorted(root.rglob("*.mlir")):
        if "sdy.sharding" not in path.read_text():
            continue
        try:
            found = list(functions(path))
        except ir.MLIRError:
            continue
        for name, text in found:
            if only in name and devices_of(text) > 1:
                yield judge(name, text)


def judge(name: str, text: str) -> Field:
    """Plan one function, and partition it by all peers."""
    wire, why = {}, ""
    if _DIALECT in text:
        text, why = _lowered(text)
    if not why:
        whole = partitioned(text, devices_of(text))
        found = {"XLA": enzyme.plain(whole), "XLA with its flag": enzyme.flagged(whole), **enzyme.peer(whole).settings}
        wire = {who: result.wire_bytes for who, result in found.items() if result.wire_bytes is not None}
        why = "" if wire else found["XLA"].reason
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plan = eggshard.optimize(text, cost_model=WireBytes(), limits=Limits(seconds=SECONDS))
        checked = _checked(text, plan)
    except EggshardError as error:
        return Field(name, "refused", None, wire, "", str(error))
    except AssertionError as error:
        return Field(name, "wrong", None, wire, "", str(error).strip().partition("\n")[0])
    ours = float(plan.wire_bytes)
    result = Field(name, "no peer", ours, wire, checked, why)
    if result.least is None:
        return result
    least, who = result.least
    outcome = "worse" if ours > least + 0.5 else "better" if ours < least - 0.5 else "equal"
    return Field(name, outcome, ours, wire, checked, f"{ours:.0f} bytes, {least:.0f} by {who}")


def _lowered(text: str) -> tuple[str, str]:
    """The program without ops of Enzyme's dialect, and why that could not be."""
    python = enzyme.interpreter()
    if python is None:
        return text, "enzyme_ad, which lowers its dialect, is not installed"
    (answer,) = enzyme.passes(python, text, (_LOWER,)) or [{"error": "the passes took too long"}]
    if "error" in answer:
        return text, answer["error"]
    with jax_mlir.make_ir_context(), ir.Location.unknown():
        module = ir.Module.parse(answer["text"])
        return "\n".join(str(op) for op in module.body.operations), ""


def _checked(text: str, plan: eggshard.Plan) -> str:
    """How a plan was checked; AssertionError where its results are others than the program's."""
    program = meaning_of(text)
    if sum(type_.bytes for type_ in program.region.types) > MOST_BYTES:
        return "proved" if plan.proved is not None and plan.proved.equal else ""
    arrays = inputs_of(program, 0, nans=False)
    for i, (made, wanted) in enumerate(zip(plan.run(*arrays), evaluate_region(program.region, arrays), strict=True)):
        np.testing.assert_allclose(made, wanted, rtol=1e-12, err_msg=f"result {i}")
    return "run"


def table(found: Sequence[Field]) -> Table:
    """How many there are of each outcome, and how they were checked."""
    counts, checks = Counter(f.outcome for f in found), Counter(f.checked for f in found)
    out = Table(
        title="the sharded functions of Enzyme-JAX's tests: bytes of the busiest device beside the best peer's",
        pad_edge=False, caption="peers: XLA, XLA with xla_enable_enzyme_comms_opt, and enzyme_ad's pipelines with and "
        "without it. run: on simulated devices, against the program on whole arrays; proved: of fields too large for "
        "that. worse, wrong and refused are to be 0",
    )
    for name in ("functions", *OUTCOMES, "run", "proved"):
        out.add_column(name, justify="right")
    out.add_row(str(len(found)), *(str(counts[o]) for o in OUTCOMES), *(str(checks[c]) for c in ("run", "proved")))
    return out
