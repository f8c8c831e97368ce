"""The JAX front end: reads what JAX lowers and exports into Programs, with the calling conventions of its functions.

*In*: a ``jax.stages.Lowered`` or a ``jax.export.Exported`` (`sources`). *Out*: the Program of its StableHLO module
(`frontends/stablehlo/`), and of the former its signature: pytrees, dropped and donated arguments, typed keys, stated
shardings and devices (`calling_convention`). Its sources are told without importing JAX.

*Not here*: running anything (`engines/jax/`), and what wraps `jax.jit` (`jit`).
"""
