"""Experiments that use the library from outside: run `python -m experiments.NAME` in a checkout."""
