"""data_manifests/ to verified local files."""
