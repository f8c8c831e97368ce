"""Programs: meshes, tensor types, ops, regions."""
