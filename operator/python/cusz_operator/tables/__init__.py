"""What stands in a file beside the archives, for writing and reading alike: block tables, checks, statistics, types."""
