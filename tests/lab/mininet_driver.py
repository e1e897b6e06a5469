"""Runs Mininet's `mn` without its changes to the whole machine: higher limits, and the clean-up after an error.

Usage, under the system's Python: mininet_driver.py ARGUMENTS-OF-MN...
"""

import runpy
import sys

import mininet.clean
import mininet.net
import mininet.util


def nothing() -> None:
    pass


if __name__ == "__main__":
    mininet.util.fixLimits = mininet.net.fixLimits = mininet.clean.cleanup = nothing
    sys.argv[0] = "mn"
    runpy.run_path("/usr/bin/mn", run_name="__main__")
