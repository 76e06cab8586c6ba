"""Side-cars of webdataset shards: the keys that they follow, and the shards of labels."""
