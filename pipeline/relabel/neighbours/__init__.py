"""The k most relevant captions of every caption or image: exact, blocked, for any source of vectors or features."""
