"""Emission of device programs as StableHLO text with shard-local shapes and explicit collectives.

In: a plan, or a device program. Out: a module's text (`stablehlo`), and that text as a JAX primitive
(`jax_primitive`). What a collective or a window is written as stands here once (`collectives_text`,
`windows_text`). Constants were chosen by what was measured; `python -m bench run` notices.

Compiling and running what was emitted is up to `engines`.
"""
