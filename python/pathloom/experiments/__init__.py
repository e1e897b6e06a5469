"""From settings to runs to results."""
