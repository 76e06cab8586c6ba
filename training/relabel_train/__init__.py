"""Graded labels in a trainer: lookups, batches, losses and metrics. Depends on numpy, pyarrow and torch alone.

`lookup` reads labels, `batches` composes batches, `losses` learns from labels, `metrics` evaluates scores. `fit` and
`evaluate` are a reference trainer made of these parts, with `models`, `features` and `training`.
"""
