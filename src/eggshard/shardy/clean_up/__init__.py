"""Clean-up passes, which tidy annotations and take no decisions."""
