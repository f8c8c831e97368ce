"""All passes, registered by being imported here."""

from __future__ import annotations

from eggshard.shardy.clean_up import closing as closing
from eggshard.shardy.local import padding as padding, permutation_factors as permutation_factors
from eggshard.shardy.passes import PASSES as PASSES, read_steps as read_steps
from eggshard.shardy.rules import stating as stating
