"""Windows at positions that are data."""

from __future__ import annotations

import pytest
from tests.ops.family_checks import check_interpreter, check_laws, check_spelling, check_xla, samples_of
from tests.ops.samples import Sample
from tests.ops.samples2 import gather_attributes

from eggshard.errors import ProgramError
from eggshard.ops import registry
from eggshard.program.types import TensorType

NAMES = ("dynamic_slice", "dynamic_update_slice", "gather")


def _real(sample: Sample) -> bool:
    return all(a.dtype.kind != "c" for a in sample[1])


@pytest.mark.parametrize("name", NAMES)
def test_laws(name: str) -> None:
    assert check_laws(name)


@pytest.mark.parametrize("name", NAMES)
def test_spelling(name: str) -> None:
    check_spelling(name)


@pytest.mark.parametrize("name", NAMES)
def test_xla_agrees(name: str) -> None:
    check_xla(name)


@pytest.mark.parametrize("name", NAMES)
def test_interpreter_agrees(name: str) -> None:
    check_interpreter(name, filter(_real, samples_of(name)))


def test_embedding_passes_batch_and_features_and_adds_over_the_vocabulary() -> None:
    attrs = gather_attributes((1, 16), offset_dims=(2,), collapsed_slice_dims=(0,), start_index_map=(0,),
                              index_vector_dim=2)
    operands = (TensorType((100, 16), "f32"), TensorType((4, 8, 1), "i32"))
    definition = registry.get("gather")
    rule = definition.factors(attrs, operands, definition.infer(attrs, operands))
    ((batch,), (sequence,), (features,)) = rule.results[0]
    assert rule.operands[1][:2] == ((batch,), (sequence,)) and rule.operands[0][1] == (features,)
    assert [rule.factors[f].kind for f in (batch, sequence, features)] == ["pass"] * 3
    vocabulary = rule.factors[rule.operands[0][0][0]]
    assert (vocabulary.kind, vocabulary.monoid, vocabulary.positional) == ("reduce", "add", True)


@pytest.mark.parametrize(
    ("sizes", "numbers", "message"),
    [
        ((1, 9), {}, "do not fit"),
        ((2, 5), {}, "exceed 1"),
        ((1, 5), {"start_index_map": (0, 1)}, "components"),
        ((1, 5), {"offset_dims": (5,)}, "repeat or do not exist"),
        ((1, 5), {"offset_dims": ()}, "do not pair up"),
        ((1, 5), {"index_vector_dim": 4}, "index vector dimension"),
    ],
)
def test_gather_refuses(sizes: tuple[int, ...], numbers: dict[str, object], message: str) -> None:
    given = {"offset_dims": (2,), "collapsed_slice_dims": (0,), "start_index_map": (0,), "index_vector_dim": 2}
    operands = (TensorType((7, 5), "f32"), TensorType((2, 3, 1), "i32"))
    with pytest.raises(ProgramError, match=message):
        registry.get("gather").infer(gather_attributes(sizes, **{**given, **numbers}), operands)


def test_dynamic_slice_refuses_a_larger_window() -> None:
    scalar = TensorType((), "i32")
    with pytest.raises(ProgramError, match="do not fit"):
        registry.get("dynamic_slice").infer({"slice_sizes": (3,)}, (TensorType((2,), "f32"), scalar))  # type: ignore[arg-type]
