"""`python -m pathloom` is the command line."""

from pathloom.cli import main

main()
