"""Padding of tensors that a sharding divides unevenly, so that all shards are equal.

`rules` say per op which dimensions are padded together, `values` what is known of padding's content, `indices` keep
indices relative to the tensor's own size, `passes` are the passes that users call.
"""
