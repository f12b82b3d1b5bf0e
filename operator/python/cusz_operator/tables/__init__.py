"""What is in a file besides archives, for both writing and reading: block tables, checks, statistics, types."""
