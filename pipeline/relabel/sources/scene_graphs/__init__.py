"""Scene graphs of captions (SPICE): tuples merged into graphs, matched by WordNet's synonyms, scored and searched."""
