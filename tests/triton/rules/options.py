"""Random options of a sample, completed by its rule."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from tests.triton.rules.one_op import Sample, kernel_at
from tests.triton.rules.random_encodings import random_encoding

from eggshard.triton import rules
from eggshard.triton.kernels.ir import Kernel, Operation, TensorType
from eggshard.triton.kernels.text import read_type
from eggshard.triton.layouts.encodings import Encoding, read
from eggshard.triton.layouts.machine import Machine
from eggshard.triton.rules import Option

#: What a tensor has before a rule was asked; nothing equals it.
UNDECIDED = read("#test.undecided")


def shape(text: str) -> tuple[int, ...] | None:
    """The shape of a type's text; None of what is no tensor."""
    type_ = read_type(text)
    return type_.shape if isinstance(type_, TensorType) else None


def undecided(sample: Sample) -> Option:
    """No encoding known yet."""
    return Option(*(tuple(None if shape(text) is None else UNDECIDED for text in texts)
                    for texts in (sample.operands, sample.results)))


class Answer(NamedTuple):
    """One option that a rule gives, and what it was asked for: the encoding of a result (or operand) of a number."""

    result: bool
    number: int
    encoding: Encoding
    option: Option


def asked(sample: Sample, option: Option, machine: Machine, seed: random.Random) -> list[Answer]:
    """What the rule answers, asked with a random encoding for one tensor that has none yet, the others being as in
    ``option``."""
    places = [(side, i, texts[i]) for side, texts in enumerate((sample.operands, sample.results))
              for i, encoding in enumerate(option[side]) if encoding == UNDECIDED]
    side, i, text = seed.choice(places)
    sizes = shape(text)
    assert sizes is not None
    encoding = random_encoding(seed, sizes, machine)
    _, op = kernel_at(sample, option, option, machine)
    found = rules.options(op, side, i, encoding, machine)
    return [Answer(bool(side), i, encoding, answer) for answer in found]


def random_options(sample: Sample, machine: Machine, seed: random.Random) -> Iterator[Option]:
    """Complete options; none where the rule has none for what it was asked."""
    waiting = [undecided(sample)]
    while waiting:
        option = waiting.pop()
        if UNDECIDED in (*option.operands, *option.results):
            waiting += [answer.option for answer in asked(sample, option, machine, seed)]
        else:
            yield option


def put(sample: Sample, option: Option, machine: Machine) -> tuple[Kernel, Operation]:
    """The sample's kernel, given at no known encodings and put at the option."""
    return kernel_at(sample, undecided(sample), option, machine)
