"""The settings of experiments: what decides a result, and the names of runs that follow from it."""
