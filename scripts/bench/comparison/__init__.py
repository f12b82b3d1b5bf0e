"""The code of scripts/bench/compare.py: cusz and other compressors, on the same fields and bounds, in one process.

fields     generated fields and .npy files
tools      one adapter for each compressor; `pfpl` is compiled from its sources
measure    time, ratio, memory and errors
report     tables, CSV, JSON; `figures` needs matplotlib
"""
