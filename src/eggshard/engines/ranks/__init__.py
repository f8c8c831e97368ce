"""A device program on one device at a time: what an engine runs that has a process for each."""
