"""Drawings of shardings, held against what JAX says of the same arrays."""

import numpy as np
import pytest

import eggshard as es
from eggshard.errors import EggshardError
from eggshard.program.placement import Dim, Placement
from eggshard.program.types import TensorType
from eggshard.report.drawing import Drawing, drawings

jax = pytest.importorskip("jax")
from jax.sharding import NamedSharding, PartitionSpec as P  # noqa: E402

MESH = jax.make_mesh((4, 2), ("x", "y"), (jax.sharding.AxisType.Auto,) * 2)


def plan(shape: tuple[int, ...], given: P, wanted: P) -> es.Plan:
    f = jax.jit(lambda a: a + 1, in_shardings=NamedSharding(MESH, given), out_shardings=NamedSharding(MESH, wanted))
    return es.optimize(f.lower(jax.ShapeDtypeStruct(shape, "float32")), cost_model="h100-node")


@pytest.mark.parametrize(("shape", "spec"), [
    ((8, 4), P("x", "y")), ((8, 4), P("y", "x")), ((8, 4), P(("y", "x"))), ((8, 4), P()), ((16,), P("x")),
    ((2, 8, 3, 4), P(None, "x", None, "y")), ((), P()),
])
def test_cells_hold_what_jax_puts_there(shape: tuple[int, ...], spec: P) -> None:
    """A device that a cell names holds the rows and columns that stand at its edges."""
    drawn = drawings(plan(shape, spec, P()))[0]
    rows, columns, cells = drawn.grid()
    held = {device.id: slices for device, slices in NamedSharding(MESH, spec).devices_indices_map(shape).items()}
    seen: set[int] = set()
    for i, row in enumerate(cells):
        for j, cell in enumerate(row):
            for device in numbers(cell):
                seen.add(device)
                for dim, header in zip(drawn.drawn, (rows[i], columns[j]), strict=True):
                    if dim is not None:
                        start, stop, _ = held[device][dim].indices(shape[dim])
                        assert header == f"{start}:{stop}"
    assert seen == set(range(8))


def numbers(cell: str) -> list[int]:
    runs = [run.split("-") for run in cell.split(", ")]
    return [device for run in runs for device in range(int(run[0]), int(run[-1]) + 1)]


def test_dimensions_that_are_drawn() -> None:
    """The two that are split, in their order; others that are split are named."""
    every = drawings(plan((2, 8, 3, 4), P(None, "x", None, "y"), P("y", "x")))
    assert [d.drawn for d in every] == [(1, 3), (0, 1)]
    assert "dimension" not in every[0].title and every[0].name in str(every)


def test_values_by_name() -> None:
    found = plan((8, 8), P("x"), P(None, "x"))
    assert found.visualize_sharding("a")[0].placement == found.input_placements[0]
    with pytest.raises(EggshardError, match=r"no value '%99'.*a, result"):
        found.visualize_sharding("%99")


def test_blocks_beyond_the_end() -> None:
    placement = Placement((Dim(("x",), 3),))
    rows, _, cells = Drawing("a", TensorType((9,), "f32"), placement, es.Mesh({"x": 4})).grid()
    assert rows == ["0:3", "3:6", "6:9", "nothing"] and np.shape(cells) == (4, 1)


def test_shown_in_notebooks() -> None:
    page = plan((8, 4), P("x", "y"), P()).visualize_sharding()._repr_html_()
    assert page.count("<table>") == 2 and "0:2" in page
