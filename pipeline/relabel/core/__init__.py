"""Utilities that every other package may import."""
