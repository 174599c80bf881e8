"""Grids of runs: what they contain, what is already done, and where they are trained."""
