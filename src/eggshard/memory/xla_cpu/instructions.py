"""The compiler's instructions of a device program: its lowered text, parsed into a graph of values.

They are read from the text instead of the steps because the emitter is the one place that says how a step is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from eggshard.emit.body_text import Value
from eggshard.emit.collectives_text import StepText
from eggshard.program.types import TOKEN, TensorType
from eggshard.steps.steps import StepPlan

_OP = re.compile(r'(?:(%[\w]+)(?::\d+)? = )?"(?:(?:stablehlo|sdy|func)\.)?([\w.]+)"\(([^)]*)\)(.*)$')
_TYPE = re.compile(r"tensor<((?:\d+x)*)((?:complex<)?\w+>?)>|(!stablehlo\.token)")
_ARGUMENT = re.compile(r"(%\w+): ")


@dataclass
class Instruction:
    """One op: its operands by name, its results' names and types, the text of its attributes, its regions."""

    name: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    types: tuple[TensorType, ...]
    attributes: str
    regions: list[Block] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """The bytes of all results together."""
        return sum(t.bytes for t in self.types)

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of integers among the attributes, e.g. ``permutation = array<i64: 1, 0>`` or ``dims = [0, 2]``."""
        found = re.search(rf"\b{key} = (?:array<i64(?:: )?|\[)([\d, -]*)", self.attributes)
        return tuple(int(n) for n in found[1].split(",")) if found and found[1].strip() else ()

    def integer(self, key: str) -> int:
        """An integer among the attributes, e.g. ``all_gather_dim = 1 : i64``."""
        found = re.search(rf"\b{key} = (\d+)", self.attributes)
        assert found is not None, f"{self.name} has no {key}: {self.attributes}"
        return int(found[1])


@dataclass
class Block:
    """Instructions in order, over named values: what comes in, and what goes out."""

    inputs: tuple[str, ...] = ()
    body: list[Instruction] = field(default_factory=list)
    outputs: tuple[str, ...] = ()
    types: dict[str, TensorType] = field(default_factory=dict)

    def free(self) -> Iterator[str]:
        """The names that are used here, in regions too, and bound outside; each as often as it is used."""
        bound = {*self.inputs, *(v for i in self.body for v in i.results)}
        for i in self.body:
            for v in (*i.operands, *(v for region in i.regions for v in region.free())):
                if v not in bound:
                    yield v
        yield from (v for v in self.outputs if v not in bound)


def instructions(program: StepPlan) -> Block:
    """The lowered device program. LoweringError for one that XLA cannot run."""
    text = StepText(program.mesh, "", platform="cpu")
    arguments = [Value(f"%l{v}", program.types[v]) for v in program.inputs]
    outputs = text.program(program, arguments)
    block = _read(iter(text.lines))
    block.inputs = tuple(v.name for v in arguments)
    block.outputs = tuple(v.name for v in outputs)
    block.types.update(zip(block.inputs, (v.type for v in arguments), strict=True))
    return block


def _read(lines: Iterator[str]) -> Block:
    """A block up to its end: the text's, or the line that closes its region (which the terminator comes before)."""
    block = Block()
    for line in lines:
        line = line.strip()
        if line.startswith("^bb0("):
            block.inputs = tuple(_ARGUMENT.findall(line))
            block.types.update(zip(block.inputs, types_in(line), strict=True))
            continue
        found = _OP.match(line)
        assert found is not None, f"no op in the generic form: {line}"
        bound, name, operands, rest = found.groups()
        names = tuple(operands.split(", ")) if operands else ()
        if name == "return":
            block.outputs = names
            return block
        regions, attributes = [], rest
        if rest.endswith("({"):
            last = "}, {"
            while last == "}, {":
                regions.append(_read(lines))
                last = next(lines).strip()
            rest = last
            attributes += last
        head, _, results = rest.rpartition(" -> ")
        types = types_in(results)
        made = (bound,) if len(types) == 1 else tuple(f"{bound}#{i}" for i in range(len(types)))
        block.body.append(Instruction(name, names, made, types, attributes, regions))
        block.types.update(zip(made, types, strict=True))
    return block


def types_in(text: str) -> tuple[TensorType, ...]:
    """The tensor types that a text names, in order."""
    return tuple(
        TensorType((), TOKEN) if token else TensorType(tuple(int(n) for n in shape.split("x")[:-1]), dtype)
        for shape, dtype, token in _TYPE.findall(text)
    )
