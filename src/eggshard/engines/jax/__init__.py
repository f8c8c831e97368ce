"""The JAX engine: plans compiled by XLA and called on global arrays, differentiated, exported, verified.

In: a plan. Out: a callable with the signature of the planned function (`callable`), its gradient (`gradient`), the
comparison with XLA's own program (`comparison`, `guard`), and whether plan and program agree (`verification`).
"""
