"""The engine with one process per device on this machine, which exchange data through one shared workspace."""
