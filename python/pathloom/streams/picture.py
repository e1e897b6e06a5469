"""The picture of a fit, as Fig. 6 of the paper: the best number of streams by latency, and the predicted lines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pathloom.errors import bad_input, reason
from pathloom.extras import need
from pathloom.quantities import rate_text
from pathloom.streams.model import Fit, predicted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")


def check_picture(file: Path) -> None:
    """Raises `PathloomError` unless this is a valid name of a picture file."""
    if file.suffix not in SUFFIXES:
        raise bad_input(f"--out {file}: expected a file that ends in {', '.join(SUFFIXES)}")


def draw(fitted: Fit, file: Path) -> None:
    """Draws a fit into a file. Raises `PathloomError` if it cannot be written."""
    check_picture(file)
    need("plot", f"--out {file}")
    try:
        figure(fitted).savefig(file, bbox_inches="tight")
    except OSError as error:
        raise bad_input(f"--out {file}: cannot be written: {reason(error)}") from None


def figure(fitted: Fit) -> Figure:
    """Returns the picture: measured points, and one line per bandwidth for the mean, as published."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(6.0, 4.0), dpi=150)
    axes = drawn.subplots()
    longest_s = max(one.latency_s for one in fitted.best)
    latencies_s = [longest_s * step / 100 for step in range(101)]
    for rate_bps in sorted({one.rate_bps for one in fitted.best}):
        points = [one for one in fitted.best if one.rate_bps == rate_bps]
        name = rate_text(rate_bps)
        (line,) = axes.plot(
            [latency_s * 1e3 for latency_s in latencies_s],
            [predicted(fitted.mean, rate_bps, latency_s) for latency_s in latencies_s],
            label=f"{name}, predicted",
        )
        axes.plot(
            [one.latency_s * 1e3 for one in points],
            [one.streams for one in points],
            "o",
            color=line.get_color(),
            label=f"{name}, measured",
        )
    axes.set_xlabel("latency (ms)")
    axes.set_ylabel("best number of streams")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return drawn
