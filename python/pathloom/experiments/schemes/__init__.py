"""Schemes written in Python: how they are found, loaded and kept apart."""
