"""What training code reads: the lookup, and batch plans."""
