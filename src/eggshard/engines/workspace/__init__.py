"""Workspaces, planned before a run: the address of every value of a device program in one memory slice per device."""
