"""Foundations that every other package may import."""
