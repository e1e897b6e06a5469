"""The addresses under which the page asks for data, and their answers: the same for `pathloom show` and notebooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from pathloom._core import PathloomError
from pathloom.fabrics import Fabric
from pathloom.show.results import MOST_FRAMES, NotFound, Results
from pathloom.show.sources import fabric_answer

Asked = Mapping[str, str]
Answers = Mapping[str, Callable[[Asked], Any]]
"""By address, the function that answers it."""


def answers_of_result(results: Results) -> Answers:
    """The addresses of a result."""

    def run(asked: Asked) -> tuple[str, int]:
        return asked.get("scheme", ""), _whole_number(asked, "run")

    return {
        "/v1/result": lambda _: results.about(),
        "/v1/fabric": lambda _: results.fabric(),
        "/v1/links": lambda asked: results.links(*run(asked)),
        "/v1/times": lambda asked: results.times(*run(asked)),
        "/v1/frames": lambda asked: results.frames(
            *run(asked), _whole_number(asked, "first"), _whole_number(asked, "count", MOST_FRAMES)
        ),
        "/v1/flows": lambda asked: results.flows(*run(asked), asked),
        "/v1/flow": lambda asked: results.flow(*run(asked), _whole_number(asked, "flow")),
        "/v1/race": lambda asked: results.progress(*run(asked)),
    }


def answers_of_fabric(fabric: Fabric) -> Answers:
    """The addresses of a fabric without a result."""
    return {
        "/v1/fabric": lambda _: fabric_answer(fabric),
        "/v1/summary": lambda _: fabric.summary(),
    }


def answer(answers: Answers, address: str) -> tuple[int, Any]:
    """Returns the status of HTTP and the value for JSON, for an address such as `/v1/links?scheme=ecmp&run=0`."""
    parts = urlsplit(address)
    function = answers.get(parts.path)
    if function is None:
        return _problem(404, f"nothing is at {parts.path}")
    try:
        return 200, function(dict(parse_qsl(parts.query)))
    except (NotFound, PathloomError) as problem:
        return _problem(404, str(problem))


def _problem(status: int, what: str) -> tuple[int, dict[str, Any]]:
    return status, {"status": status, "detail": what}


def _whole_number(asked: Asked, name: str, default: int | None = None) -> int:
    text = asked.get(name, "" if default is None else str(default))
    if not text.isascii() or not text.isdigit() or len(text) > 12:
        raise NotFound(f"{name} `{text}` is not a whole number")
    return int(text)
