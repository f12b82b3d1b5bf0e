"""`cusz report`: what there is to say about a run is collected, drawn, and written as one HTML page."""
