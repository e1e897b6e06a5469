"""A results folder as a page that lives: `pathloom show`. The controller serves the same page for a live fabric."""
