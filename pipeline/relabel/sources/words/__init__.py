"""Word vectors: their files, and bags of words over them."""
