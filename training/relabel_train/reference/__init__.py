"""The reference training: models, features, one loop that trains, and the evaluation."""
