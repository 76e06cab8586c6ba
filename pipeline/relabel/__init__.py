"""relabel: graded relevance labels for image-text retrieval, from captions, judged against human scores."""
