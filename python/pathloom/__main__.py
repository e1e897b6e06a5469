"""Runs the command line for `python -m pathloom`."""

from pathloom.cli import main

main()
