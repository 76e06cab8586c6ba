"""Parts of `relabel_train.reference.fit`, one idea per file."""
