"""Exit codes of commands."""

from __future__ import annotations

import signal

EXIT_ERROR, EXIT_BAD_INPUT, EXIT_INTERRUPTED = 1, 2, 130
EXIT_TERMINATED = 128 + signal.SIGTERM


class Interrupted(Exception):
    """Ctrl-C interrupted the command. The text says how much was finished and where it is kept."""
