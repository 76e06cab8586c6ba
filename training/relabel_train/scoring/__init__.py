"""Rules that turn references and scores into relevance: each is defined here, for encodings and for lookups.

The package needs numpy only. An encoding scores corpus rows and decides what relevance is; a lookup answers blocks in
microseconds. CIDEr and SPICE have a layout for each of these uses, and tests compare the two.
"""
