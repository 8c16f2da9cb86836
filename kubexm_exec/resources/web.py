"""Fetches over http and https, by the one client: goes on with the same version only, and says what a no means."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from kubexm_exec.control import Cancel
from kubexm_exec.http.client import Response, Trust, ask
from kubexm_exec.http.messages import PASSING, EndedError, HttpError, Request
from kubexm_exec.http.ranges import RestartError, is_tag, piece_of, range_headers
from kubexm_exec.resources.source import ResourceError, Source
from kubexm_exec.resources.transfer import Answer, BrokenError, NotModifiedError

_HINTS: Final = {
    401: "authentication required: set `headers` with {{ secret('env:NAME') }}",
    403: "access denied: check its `headers` and the permissions behind them",
    404: "there is no such file: check the address, and the version in it",
    407: "the proxy requires a password: check https_proxy in the environment",
    410: "it was removed permanently: look for a newer version",
}


class WebFetcher:
    """Files behind http:// and https:// addresses."""

    @contextlib.contextmanager
    def open(
        self,
        source: Source,
        *,
        start: int = 0,
        validator: str = "",
        total: int | None = None,
        unless: str = "",
        cancel: Cancel | None = None,
    ) -> Iterator[Answer]:
        """Ask for the file."""
        own = {"Accept": "*/*", "Accept-Encoding": "identity", **range_headers(start, validator)}
        if unless and not start:
            own["If-None-Match" if is_tag(unless) else "If-Modified-Since"] = unless
        request = Request("GET", source.location, source.headers, own)
        with contextlib.ExitStack() as stack:
            try:
                trust = Trust(source.ca_file)
                response = stack.enter_context(ask(request, silence=source.timeout, trust=trust, cancel=cancel))
                answer = _answer(source, response, start, validator, total)
            except HttpError as error:
                raise _no(source, error) from error
            except RestartError:
                stack.close()
                answer = stack.enter_context(self.open(source, cancel=cancel))
            yield answer


def _answer(source: Source, response: Response, start: int, validator: str, total: int | None) -> Answer:
    status = response.status
    if status == 304:
        raise NotModifiedError
    piece = piece_of(status, response.headers, start, validator, total, verified=bool(source.sha256))
    if piece is not None:
        read = _nothing if piece.complete else _reader(response, piece.total)
        return Answer(read, piece.start, piece.total, piece.validator)
    said = f"the server answered {status} {response.reason}".rstrip()
    if status in PASSING:
        raise BrokenError(said, "the server is busy or broken: try again later")
    raise ResourceError(f"resource {source.label}: {source.shown}: {said}", _HINTS.get(status, "check its address"))


def _nothing(size: int) -> bytes:
    return b""


def _reader(response: Response, total: int | None) -> Callable[[int], bytes]:
    def read(size: int) -> bytes:
        try:
            return response.read(size)
        except EndedError as error:
            if total is not None:
                # Who counts the bytes can say how many are missing.
                return b""
            raise BrokenError(error.reason, error.hint) from error
        except HttpError as error:
            raise BrokenError(error.reason, error.hint) from error

    return read


def _no(source: Source, error: HttpError) -> Exception:
    """What a failure means here: a no that stays one, or something that may pass."""
    if error.passing:
        return BrokenError(error.reason, error.hint)
    return ResourceError(f"resource {source.label}: {source.shown}: {error.reason}", error.hint)
