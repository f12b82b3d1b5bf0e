"""Writing: what the ranks agree on, how each compresses its blocks, and what ADIOS2 is given to store."""
