"""Side-cars of webdataset shards: the keys of image shards, and label shards for these keys."""
