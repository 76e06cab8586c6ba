"""Makes the model a source takes: `relabel tune SOURCE --on DATA`."""
