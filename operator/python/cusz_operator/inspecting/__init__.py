"""Inspecting files: their blocks and variables, the differences between two runs, and the report on a run."""
