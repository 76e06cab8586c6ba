"""Captions as sparse rows of n-grams: vocabulary, counts, inverted index and the kernels of CIDEr and CIDEr-D."""
