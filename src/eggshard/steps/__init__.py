"""Device programs, the steps that every device runs on its shards.

A `StepPlan` (`steps`) is a list of steps over local values; a step's action is a local op, a collective, an exchange of
pieces (`piece_steps`, `exchange`) or of halos (`window_steps`), or a loop or branch with device programs inside
(`control_steps`). Each action states its result types and the bytes that every device receives.

In: actions chosen by the rooms above. Out: device programs, put together by `assemble`. What a step costs stands in
`costmodel`, what it does in `simulate` and `emit`.

`python -m bench stencil latency` shows what a change of its constants does.
"""
