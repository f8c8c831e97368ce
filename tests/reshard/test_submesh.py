"""Reshards along some axes of a mesh, while devices along the others hold tensors of their own."""

from __future__ import annotations

import numpy as np
import pytest

from eggshard.costmodel import Messages, WireBytes
from eggshard.costmodel.pricing import Pricer
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement, place
from eggshard.program.types import TensorType
from eggshard.reshard.submesh import SubmeshRouter, without_axes
from eggshard.simulate.simulator import gather_from_devices, perform, scatter_to_devices
from eggshard.steps.exchange import BoxExchange
from eggshard.steps.steps import CollectivePermute

MESHES = [
    Mesh({"x": 2, "m": 2, "y": 2}),
    Mesh({"m": 3, "x": 2, "y": 2}, range(11, -1, -1)),
    Mesh({"x": 2, "m:(1)2": 2, "y": 2, "m:(2)2": 2}),
]
DIMS = [((), ()), (("x",), ()), ((), ("x",)), (("x", "y"), ()), (("y", "x"), ()), (("y",), ("x",)), ((), ("y", "x"))]


def test_names_of_axes_and_their_parts() -> None:
    assert without_axes(MESHES[2], ("m",)).axes == {"x": 2, "y": 2}
    assert without_axes(MESHES[0], ()) == MESHES[0]
    assert without_axes(MESHES[0], ("x", "y", "m")).size == 1


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("shape", [(8, 4), (7, 5), (4, 0)], ids=str)
def test_every_copy_is_resharded_by_itself(mesh: Mesh, shape: tuple[int, int]) -> None:
    free = without_axes(mesh, ("m",))
    members = mesh.groups(free.axes)
    copies = np.random.default_rng(0).standard_normal((len(members), *shape)).astype(np.float32)
    found: list[Placement] = [place(free, shape, dims) for dims in DIMS if 0 not in shape or not any(dims)]
    found.append(place(free, shape, ((), ()), ("y",), "add"))
    kinds = set()
    for model in (WireBytes(), Messages()):
        router = SubmeshRouter(mesh, free, Pricer(model, mesh))
        for source in found:
            shards = np.empty((mesh.size, *source.local_shape), np.float32)
            for rows, copy in zip(members, copies, strict=True):
                shards[rows] = scatter_to_devices(free, copy, source)
            ways = [(target, router.route(TensorType(shape, "f32"), source, target).steps) for target in found]
            ways += [(steps[-1][1], steps) for start, steps in router.tree(TensorType(shape, "f32"), source, found)
                     if start == source]
            for target, steps in ways:
                now = (shards,)
                for action, _ in steps:
                    now = perform(mesh, action, now)
                    kinds.add(type(action))
                for rows, copy in zip(members, copies, strict=True):
                    got = gather_from_devices(free, now[0][rows], shape, target)
                    np.testing.assert_array_equal(got, copy)
    assert 0 in shape or kinds & {CollectivePermute, BoxExchange}
