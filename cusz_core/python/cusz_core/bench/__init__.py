"""`cusz bench`: this package beside other compressors, on the same fields, under the same bound, in one process.

fields     generated fields and .npy files
tools      one adapter for each compressor; `pfpl` is one that is compiled from its sources
measure    time, ratio, memory, and what came back
report     tables, CSV, JSON; `figures` needs matplotlib
command    the options of `cusz bench`
"""
