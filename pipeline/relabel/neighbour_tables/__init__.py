"""Tables of the k most relevant captions for every caption or image."""
