"""`cusz report`: collects facts about a run, draws them, and writes them as one HTML page."""
