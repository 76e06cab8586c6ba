"""Files of word vectors, and bags of words."""
