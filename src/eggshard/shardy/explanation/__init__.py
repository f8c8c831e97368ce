"""What propagation decided, for people: the origin of every axis, and the conflicts and reshards that follow."""
