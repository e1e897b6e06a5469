"""Sweeps: comparisons at many points, carried out as one list of runs."""
