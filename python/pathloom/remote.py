"""Client of a live controller's HTTP API. It needs only the standard library, except for `srv:NAME`."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import ssl
import stat
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pathloom._core import PathloomError
from pathloom.errors import ToolError, bad_input, reason
from pathloom.srv import urls

URL_VARIABLE, TOKEN_VARIABLE = "PATHLOOM_URL", "PATHLOOM_TOKEN"
DEFAULT_URL = "http://127.0.0.1:6680"
ROLES = ("read", "operate")
PATIENCE_S = 60.0
PAGE_ITEMS = 1000
_CHECK_ADDRESS = "check that the controller runs and that its configuration has an [api] address"


def find_token(token_file: Path | None) -> str:
    """Reads a token from the environment, or from a file with one token or with lines `ROLE NAME TOKEN`.

    Of several tokens, it takes the first with the role `operate`, or else the last one.
    """
    if token_file is None:
        token = os.environ.get(TOKEN_VARIABLE, "").strip()
        if not token:
            raise bad_input(
                f"no token: set {TOKEN_VARIABLE}, or give --token-file with the controller's file of tokens"
            )
        return token
    try:
        lines = token_file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise bad_input(f"--token-file {token_file}: {reason(error)}") from None
    words = [line.split() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not words or len(words[-1]) not in (1, 3):
        raise bad_input(f"--token-file {token_file}: expected a token, or lines ROLE NAME TOKEN")
    # A token with the role `operate` may also read.
    best = next((line for line in words if line[0] == "operate"), words[-1])
    return best[-1]


def make_token(name: str, role: str, file: Path | None) -> str:
    """Makes a token and adds it to `file`, which no other user may read. Returns the line."""
    if role not in ROLES:
        raise bad_input(f"--role `{role}`: expected {' or '.join(ROLES)}")
    if not name or name.split() != [name] or name.startswith("#"):
        raise bad_input(f"NAME `{name}`: expected one word, such as grafana")
    line = f"{role} {name} {secrets.token_hex(24)}"
    if file is None:
        return line
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "a+") as tokens:
            if stat.S_IMODE(os.fstat(tokens.fileno()).st_mode) & 0o077:
                raise bad_input(f"{file}: other users have access to it; run `chmod 600 {file}` first")
            tokens.seek(0)
            text = tokens.read()
            if any(len(words := old.split()) == 3 and words[1] == name for old in text.splitlines()):
                raise bad_input(f"{file}: `{name}` has a token already; choose another name, or delete its line")
            tokens.write(("" if not text or text.endswith("\n") else "\n") + line + "\n")
    except OSError as error:
        raise bad_input(f"{file}: {reason(error)}") from None
    return line


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Leaves redirects to the client, which does not send a token to an address without encryption."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Elsewhere(Exception):
    """Another controller should be asked. `location` is the URL where the leader answers, if it is known."""

    def __init__(self, problem: PathloomError | ToolError, location: str | None = None) -> None:
        """`problem` is raised if no other controller answers."""
        super().__init__(str(problem))
        self.problem, self.location = problem, location


class Controller:
    """A running controller, reached at its URL, or one of several controllers: the one that leads."""

    def __init__(self, url: str, token: str, ca: Path | None = None) -> None:
        """`url` may be a list of URLs with commas between them, and `srv:NAME` (`pathloom.srv`)."""
        self.urls = urls(url)
        for one in self.urls:
            parts = urllib.parse.urlsplit(one)
            if parts.scheme not in ("http", "https") or not parts.netloc:
                raise bad_input(f"--url `{one}`: expected http://HOST:PORT or https://HOST:PORT")
        is_encrypted = any(one.startswith("https:") for one in self.urls)
        try:
            context = ssl.create_default_context(cafile=ca) if is_encrypted else None
        except OSError as error:
            raise bad_input(f"--ca {ca}: {reason(error)}") from None
        self.url = self.urls[0]
        self._token = token
        # Ignores the proxies of the environment: a controller is reached directly.
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({}), _NoRedirects()]
        if context is not None:
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Sends a request to the controller that leads, and returns the answer.

        Raises `PathloomError` with the error message of the controller, and `ToolError` if it does not answer with
        JSON.
        """
        waiting, asked = [self.url, *self.urls], set[str]()
        problem: PathloomError | ToolError = ToolError(f"{self.url}: no controller answers")
        while waiting:
            url = waiting.pop(0)
            if url in asked:
                continue
            asked.add(url)
            try:
                answer = self._ask(url, method, path, body)
            except Elsewhere as elsewhere:
                there = None if elsewhere.location is None else elsewhere.location.removesuffix(path).rstrip("/")
                if there in asked:
                    # The leader has said itself why it does not answer.
                    continue
                problem = elsewhere.problem
                if there is not None:
                    waiting.insert(0, there)
            else:
                self.url = url
                return answer
        raise problem from None

    def cluster(self) -> dict[str, Any] | None:
        """What any of several controllers knows about all of them, also one that follows; None if none answers.

        `age_s` is the age of that.
        """
        for url in self.urls:
            try:
                found = self._ask(url, "GET", "/v1/cluster", None)
            except (Elsewhere, PathloomError, ToolError):
                continue
            if isinstance(found, dict):
                return found
        return None

    def _ask(self, url: str, method: str, path: str, body: object) -> Any:
        """Asks the controller with this URL. Raises `Elsewhere` if another one should be asked."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url + path, data, method=method)
        request.add_header("Authorization", f"Bearer {self._token}")
        if data is not None:
            request.add_header("Content-Type", "application/json")
        try:
            with self._opener.open(request, timeout=PATIENCE_S) as answer:
                content = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                told, location = bad_input(_told(error)), error.headers.get("Location")
            # With this header, the controller says that it has not carried out the request, and that another one may.
            is_not_done = method == "GET" or "Retry-After" in error.headers
            if error.code == http.client.SERVICE_UNAVAILABLE and is_not_done:
                raise Elsewhere(told) from None
            if error.code == http.client.TEMPORARY_REDIRECT and location is not None:
                if url.startswith("https:") and not location.startswith("https:"):
                    raise bad_input(f"{url}: names {location}, to which the token would go unencrypted") from None
                raise Elsewhere(told, location) from None
            raise told from None
        except (OSError, http.client.HTTPException) as error:
            problem = ToolError(f"{url}: no HTTP answer: {_cause(error)}; {_CHECK_ADDRESS}")
            # A change is not sent twice: the controller may have carried it out.
            refused = isinstance(getattr(error, "reason", error), ConnectionRefusedError)
            if method == "GET" or refused:
                raise Elsewhere(problem) from None
            raise problem from None
        except ValueError:
            # Its message would show the token.
            raise bad_input(f"{url}: the address or the token has characters that HTTP does not allow") from None
        try:
            return json.loads(content)
        except ValueError:
            raise ToolError(f"{url}: the answer is not JSON; {_CHECK_ADDRESS}") from None

    def pages(self, path: str) -> Iterator[dict[str, Any]]:
        """All items of a list, page by page."""
        joint, after = ("&" if "?" in path else "?"), ""
        while True:
            page = self.ask("GET", f"{path}{joint}limit={PAGE_ITEMS}{after}")
            yield from page["items"]
            if page["next"] is None:
                return
            after = "&after=" + urllib.parse.quote(page["next"])


def _cause(error: Exception) -> str:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    return reason(cause) if isinstance(cause, BaseException) else cause


def _told(error: urllib.error.HTTPError) -> str:
    try:
        problem = json.loads(error.read(1 << 16))
        parts = [problem.get("place"), problem["detail"]]
        text = ": ".join(part for part in parts if part)
        text += f"; expected {problem['expected']}" if "expected" in problem else ""
        text += f"; {problem['way_out']}" if "way_out" in problem else ""
    except (ValueError, LookupError, TypeError, AttributeError, OSError, http.client.HTTPException):
        return f"the controller answered with {error.code} {error.reason}"
    return f"the controller says: {text}"


def quote(name: str) -> str:
    """Quotes a name for the path of a URL."""
    return urllib.parse.quote(name, safe=":,")
