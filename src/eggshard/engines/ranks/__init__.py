"""The per-device interpreter of device programs, for engines with a process per device."""
