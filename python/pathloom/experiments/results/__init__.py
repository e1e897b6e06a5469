"""Figures, tables, notes and files of results. Nothing here carries out a run."""
