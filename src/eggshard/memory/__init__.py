"""What a device program takes of a device's memory, and plans that take less."""
