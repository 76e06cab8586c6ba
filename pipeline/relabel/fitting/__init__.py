"""Every loss trained with the same budget and seeds, and one table of it."""
