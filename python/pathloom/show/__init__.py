"""A results folder as an interactive page: `pathloom show`. The controller serves the same page for a live fabric."""
