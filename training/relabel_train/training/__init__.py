"""Parts of `relabel_train.fit`, one idea per file."""
