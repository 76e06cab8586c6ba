"""Reference training: retrieval models, trained with graded labels and evaluated by every metric."""
