"""What scripts/bench/compare.py does: cusz beside other compressors, on the same fields and bounds, in one process.

fields     generated fields and .npy files
tools      one adapter for each compressor; `pfpl` is one that is compiled from its sources
measure    time, ratio, memory, and what came back
report     tables, CSV, JSON; `figures` needs matplotlib
probe      a tool that may crash, tried in a process of its own
command    its options
"""
