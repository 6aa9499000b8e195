"""Tables of results: a grid of runs from one YAML file, done here, in worker processes or on Ray, and collected."""
