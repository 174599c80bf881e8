"""Grids of runs: their content, their progress, and the machines that train them."""
