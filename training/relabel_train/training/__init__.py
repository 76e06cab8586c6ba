"""What `relabel_train.fit` is made of, one idea a file."""
