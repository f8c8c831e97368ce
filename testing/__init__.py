"""What tests and benchmarks judge plans by, not part of the wheel."""
