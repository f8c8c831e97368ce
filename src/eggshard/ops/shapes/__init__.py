"""Ops that keep elements and move them: transposes, reshapes, broadcasts, slices, pads, concatenations, annotations."""
