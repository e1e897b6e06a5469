"""Artefacts of publications: experiments with their expected results, and the check that repeats them."""
