"""Reading: what a file or stream has, and any part of it on any rank, decoded outside ADIOS2."""
