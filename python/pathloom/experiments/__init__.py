"""Experiments: settings, runs and results."""
