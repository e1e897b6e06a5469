"""Reproduction of published figures: `pathloom reproduce`."""
