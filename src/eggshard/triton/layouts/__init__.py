"""Layouts: which bits of register, lane, warp and block hold which bits of a tensor's indices."""
