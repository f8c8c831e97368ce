"""What can come in: loaders that turn a source program into a Program."""
