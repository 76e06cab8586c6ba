"""Tables of the k most relevant captions of every caption or image: exact, for any source that has a search."""
