"""Asks a controller for paths by XML-RPC. It needs only the standard library."""

from __future__ import annotations

import http.client
import xmlrpc.client
from typing import Any
from xml.parsers.expat import ExpatError

from pathloom.errors import ToolError, bad_input, reason

PATIENCE_S = 30.0
SERVER_FAULTS = range(500, 600)
"""Codes of faults that the caller did not cause: the controller has no time, or is stopping."""


class _Transport(xmlrpc.client.Transport):
    """A transport with a time-out."""

    def make_connection(self, host: Any) -> http.client.HTTPConnection:
        connection = super().make_connection(host)
        connection.timeout = PATIENCE_S
        return connection


class Service:
    """The service of a controller for applications on hosts."""

    def __init__(self, address: str, port: int, token: str | None = None) -> None:
        if not 1 <= port <= 65_535:
            raise bad_input(f"PORT {port}: expected 1 to 65535")
        if not address or any(character in address for character in "/?#@ "):
            raise bad_input(f"CONTROLLER `{address}`: expected an address or a name")
        host = f"[{address}]" if ":" in address else address
        self.place = f"{host}:{port}"
        self._headers = [("Authorization", f"Bearer {token}")] if token else []

    def assign(self, src_ip: str, src_mac: str, dst_ip: str, paths: int) -> tuple[int, int]:
        """Requests paths between two hosts. Returns how many were found, and the id of the assignment."""
        found, assignment = self._call("AssignMultipath", src_ip, src_mac, dst_ip, paths)
        return int(found), int(assignment)

    def make_path(self, assignment: int, src_ip: str, dst_ip: str, src_port: int) -> None:
        """Claims the next path for the connection from this source port."""
        self._call("MakePath", assignment, src_ip, dst_ip, src_port)

    def release(self, assignment: int) -> None:
        """Releases an assignment; its connections keep their paths."""
        self._call("ReleaseMultipath", assignment)

    def _call(self, method: str, *parameters: object) -> Any:
        transport = _Transport(headers=self._headers)
        try:
            with xmlrpc.client.ServerProxy(f"http://{self.place}", transport=transport) as proxy:
                return getattr(proxy, method)(*parameters)
        except xmlrpc.client.Fault as fault:
            problem = f"{method}: the controller refuses: {fault.faultString}"
            raise (ToolError(problem) if fault.faultCode in SERVER_FAULTS else bad_input(problem)) from None
        except OverflowError:
            raise bad_input(f"{method}: a number is too large; expected at most 2147483647") from None
        except (xmlrpc.client.Error, ExpatError, OSError, http.client.HTTPException) as error:
            way_out = "compare it with [paths] address in the controller's configuration"
            raise ToolError(f"no answer from {self.place}: {reason(error)}; {way_out}") from None
