"""Workspaces: where every value of a device program lies in one slice of memory per device, planned before it runs."""
