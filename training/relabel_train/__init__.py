"""relabel_train: what a trainer needs of relabel. numpy, pyarrow and torch alone."""
