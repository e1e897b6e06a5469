"""Published figures, run again: `pathloom reproduce`."""
