"""Rules on parts of tensors: slices, pads, concatenations, halos and updates of slices."""
