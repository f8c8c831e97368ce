"""Op sharding rules: which dimensions of an op's operands and results are one index, and what sharding it takes."""
