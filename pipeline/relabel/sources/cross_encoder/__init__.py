"""A cross-encoder that refines what a cheaper label lets through: its model, its pairs, its neighbours."""
