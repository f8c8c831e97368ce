"""Op sharding rules: which dimensions of an op's operands and results are one index, and what sharding it takes."""

from eggshard.shardy.rules.registry import rule_of as rule_of
from eggshard.shardy.rules.rule import OpShardingRule as OpShardingRule, RuleFactor as RuleFactor
