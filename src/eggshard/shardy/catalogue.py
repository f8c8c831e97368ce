"""All passes, registered by being imported here."""

from __future__ import annotations

from eggshard.shardy.clean_up import closing as closing
from eggshard.shardy.passes import PASSES as PASSES, read_steps as read_steps
from eggshard.shardy.reshards import (
    canonical_collectives as canonical_collectives,
    collective_matmul as collective_matmul,
    planned as planned,
    to_collectives as to_collectives,
)
from eggshard.shardy.rules import stating as stating
