"""Programs of repeated layers: found, planned with two of them, and lifted back to all."""
