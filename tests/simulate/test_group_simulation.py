"""Collectives over groups that no axes span, on the simulator: as their definition says."""

from __future__ import annotations

import numpy as np
import pytest

from eggshard.errors import LoweringError
from eggshard.ops.reductions.reduction import monoid_region
from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType
from eggshard.simulate.simulator import perform
from eggshard.steps.authored_steps import GroupCollective

GROUPS = ((0, 3), (2, 1))
SHARDS = np.arange(4 * 2 * 4, dtype=np.float32).reshape(4, 2, 4)


def run(name, shape, groups=GROUPS, **attributes):
    values = Attributes(replica_groups=groups, use_global_device_ids=True, **attributes)
    action = GroupCollective(name, values, (TensorType(shape, "f32"),), (monoid_region("add", "f32"),))
    return perform(Mesh({"x": 4}), action, (SHARDS,))[0]


def test_every_collective():
    pairs = [(0, 3), (3, 0), (2, 1), (1, 2)]
    gathered = run("all_gather", (4, 4), all_gather_dim=0)
    summed, scattered = run("all_reduce", (2, 4)), run("reduce_scatter", (2, 2), scatter_dimension=1)
    exchanged = run("all_to_all", (4, 2), split_dimension=1, concat_dimension=0, split_count=2)
    for number, (device, other) in enumerate(pairs):
        first, second = (device, other) if number % 2 == 0 else (other, device)
        half = slice(0, 2) if number % 2 == 0 else slice(2, 4)
        np.testing.assert_array_equal(gathered[device], np.concatenate([SHARDS[first], SHARDS[second]]))
        np.testing.assert_array_equal(summed[device], SHARDS[device] + SHARDS[other])
        np.testing.assert_array_equal(scattered[device], (SHARDS[device] + SHARDS[other])[:, half])
        blocks = [SHARDS[member][:, half] for member in (first, second)]
        np.testing.assert_array_equal(exchanged[device], np.concatenate(blocks))


@pytest.mark.parametrize("groups", [((0, 1), (2,)), ((0, 1, 2), (3,)), ((0, 1),)])
def test_groups_of_another_form_are_refused(groups):
    with pytest.raises(LoweringError, match="groups of equal size that name every device once"):
        run("all_reduce", (2, 4), groups)
