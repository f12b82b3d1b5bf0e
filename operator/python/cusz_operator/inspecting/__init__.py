"""Looking into files: their blocks and variables, how far two runs are apart, and the report on a run."""
