"""Word mover's distance between captions: bags of words, an exact solver for them, set distances, exact neighbours."""
