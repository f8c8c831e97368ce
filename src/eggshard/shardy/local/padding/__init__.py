"""Equal shards: tensors that a sharding cuts unevenly get padding behind them.

`rules` say per op which dimensions are padded together, `values` what is known of padding's content, `indices` keep
indices meaning the tensor's own size, `passes` are the passes that users call.
"""
