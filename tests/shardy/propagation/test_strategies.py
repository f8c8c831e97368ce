from __future__ import annotations

import pytest
from tests.shardy.differential import assert_agrees
from tests.shardy.propagation.generated import PLAIN, REGIONS, SUB_AXES, modules
from tests.shardy.propagation.programs import PROGRAMS

from eggshard import shardy
from eggshard.errors import ProgramError, ShardingError

pytestmark = pytest.mark.filterwarnings("ignore:the values of sharding group")

PASSES = ("basic-propagate", "aggressive-propagate", "op-priority-propagate", "user-priority-propagate")
IMPORTED = "manual-axes-cleanup,add-data-flow-edges,apply-sharding-constraints,sharding-group-import"
OPTIONS = (
    "basic-propagate{keep-sharding-rules=true}",
    "basic-propagate{conservative-propagation=true}",
    "aggressive-propagate{propagation-strategy=basic}",
    "op-priority-propagate{propagation-strategy=basic-then-aggressive conservative-propagation=true}",
    "op-priority-propagate{run-op-priority-propagation=false}",
    "user-priority-propagate{propagation-strategy=basic-then-aggressive keep-sharding-rules=true}",
    "user-priority-propagate{run-op-priority-propagation=false}",
)


@pytest.mark.parametrize("name", PASSES)
def test_generated_modules_are_sharded_as_jaxlib_does(name: str) -> None:
    for text in modules(25, **PLAIN, priorities=0.3):
        assert_agrees(text, name)
    for text in modules(15, **SUB_AXES):
        assert_agrees(text, name)
    for text in modules(15, **REGIONS, priorities=0.2):
        assert_agrees(text, f"{IMPORTED},{name}")


@pytest.mark.slow
@pytest.mark.parametrize("name", PASSES)
def test_many_generated_modules_are_sharded_as_jaxlib_does(name: str) -> None:
    for text in modules(120, **PLAIN, priorities=0.3):
        assert_agrees(text, name)
    for text in modules(120, **SUB_AXES):
        assert_agrees(text, name)
    for text in modules(120, **REGIONS, priorities=0.2):
        assert_agrees(text, f"{IMPORTED},{name}")


@pytest.mark.parametrize("name", PASSES)
def test_written_modules_are_sharded_as_jaxlib_does(name: str) -> None:
    for text in PROGRAMS.values():
        assert_agrees(text, f"{IMPORTED},{name}")


@pytest.mark.parametrize("step", OPTIONS)
def test_options_do_what_jaxlibs_do(step: str) -> None:
    for text in modules(6, **PLAIN, sub_axes=True, priorities=0.2):
        assert_agrees(text, step)


def test_dead_ops_are_taken_away() -> None:
    out = shardy.transform(PROGRAMS["tokens, scalars, nothing at all, and the dead"], "basic-propagate")
    assert "cosine" not in out and "@aside" in out


def test_a_loop_is_sharded_throughout() -> None:
    out = shardy.transform(PROGRAMS["a loop"], "add-data-flow-edges,user-priority-propagate")
    assert out.count('sdy.data_flow_edge') == 3 and '%iterArg' in out
    assert 'sdy.data_flow_edge %0#2 sharding=<@mesh, [{"x", ?}, {"y", ?}]>' in out


def test_what_cannot_be_propagated_is_refused() -> None:
    dynamic = """
      func.func @main(%a: tensor<?x4xf32>) -> tensor<?x4xf32> {
        %0 = stablehlo.abs %a : tensor<?x4xf32>
        return %0 : tensor<?x4xf32>
      }"""
    with pytest.raises(ShardingError, match=r"stablehlo.abs .* known shapes"):
        shardy.transform(dynamic, "basic-propagate")
    with pytest.raises(ProgramError, match="propagation-strategy is one of basic, aggressive"):
        shardy.transform(PROGRAMS["a loop"], "aggressive-propagate{propagation-strategy=bold}")


def test_a_module_without_a_main_function_is_propagated() -> None:
    text = PROGRAMS["functions called twice"].replace("@main", "@entry")
    out = shardy.transform(text, "user-priority-propagate")
    assert '@entry(%arg0: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}, {?}]>}' in out


def test_the_order_of_operands_does_not_decide_where_nothing_conflicts() -> None:
    text = PROGRAMS["a product's factors want the same axis"]
    assert shardy.transform(text, "basic-propagate") == shardy.transform(
        shardy.transform(text, "basic-propagate"), "basic-propagate")
