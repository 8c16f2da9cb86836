"""Fetches over http and https and from object stores: goes on with the same version only, and says what a no means."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from kubexm_exec.control import Cancel
from kubexm_exec.http.client import Response, Trust, ask
from kubexm_exec.http.messages import PASSING, EndedError, HttpError, Request
from kubexm_exec.http.ranges import Piece, RestartError, is_tag, piece_of, range_headers
from kubexm_exec.resources.source import ResourceError, Source
from kubexm_exec.resources.transfer import WHOLE, Answer, BrokenError, DeniedError, NotModifiedError, Wanted

_INSTALL: Final = "pip install 'kubexm[s3]'"
_REGION: Final = "us-east-1"
_STORE_HINTS: Final = {
    "403": "access denied: check accessKeyId, secretAccessKey and the permissions of the bucket",
    "404": "there is no such object: check the bucket and the key in the address",
    "InvalidAccessKeyId": "the store does not know this key: check accessKeyId",
    "SignatureDoesNotMatch": "the key is wrong: check secretAccessKey",
}


class S3Fetcher:
    """Files behind s3://BUCKET/KEY."""

    @contextlib.contextmanager
    def open(self, source: Source, wanted: Wanted = WHOLE, cancel: Cancel | None = None) -> Iterator[Answer]:
        """Ask for the object."""
        parts = urlsplit(source.location)
        asked: dict[str, Any] = {"Bucket": parts.netloc, "Key": unquote(parts.path.lstrip("/"))}
        start = wanted.start
        if start:
            asked["Range"] = f"bytes={start}-"
            if wanted.validator:
                asked["IfMatch"] = wanted.validator
        elif wanted.unless:
            asked["IfNoneMatch"] = wanted.unless
        exceptions = _botocore("exceptions", source)
        try:
            reply = _client(source).get_object(**asked)
        except exceptions.ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            if status == 304:
                raise NotModifiedError from error
            if start and status in (412, 416):
                with self.open(source) as answer:
                    yield answer
                return
            raise _no_of_store(source, error.response.get("Error", {}), status) from error
        except exceptions.NoCredentialsError as error:
            raise ResourceError(
                f"resource {source.label}: there is no key for {source.shown}",
                'give it `s3: {accessKeyId: "env:NAME", secretAccessKey: "env:NAME"}`, or `anonymous: true`',
            ) from error
        except (exceptions.BotoCoreError, ValueError) as error:
            raise BrokenError(str(error), "is the endpoint right, and the store up?") from error
        with contextlib.closing(reply["Body"]) as body:
            answered = reply["ResponseMetadata"]
            try:
                piece = _piece(source, answered["HTTPStatusCode"], answered["HTTPHeaders"], wanted)
            except RestartError:
                piece = None
            if piece is not None:
                yield Answer(_store_reader(body, exceptions), piece.start, piece.total, piece.validator)
                return
        if not start:
            raise BrokenError(f"the store answered {answered['HTTPStatusCode']}", "is the endpoint right?")
        with self.open(source) as answer:
            yield answer


def _piece(source: Source, status: int, headers: Mapping[str, str], wanted: Wanted) -> Piece | None:
    return piece_of(
        status, headers, wanted.start, wanted.validator, wanted.total, verified=bool(source.sha256)
    )  # fmt: skip


def _store_reader(body: Any, exceptions: Any) -> Callable[[int], bytes]:
    def read(size: int) -> bytes:
        try:
            data: bytes = body.read(size)
            return data
        except (exceptions.BotoCoreError, OSError) as error:
            raise BrokenError(f"the connection broke: {error}") from error

    return read


def _no_of_store(source: Source, said: Any, status: int) -> Exception:
    code = str(said.get("Code", status))
    words = f"{code}: {said.get('Message', '')}".rstrip(": ")
    if status >= 500 or code in ("SlowDown", "RequestTimeout"):
        return BrokenError(f"the store answered {words}", "the store is busy: try again later")
    hint = _STORE_HINTS.get(code, _STORE_HINTS.get(str(status), "check its address and `s3`"))
    return ResourceError(f"resource {source.label}: {source.shown}: the store answered {words}", hint)


def _client(source: Source) -> Any:
    access = source.s3
    session = _botocore("session", source).get_session()
    config = _botocore("config", source).Config(
        connect_timeout=source.timeout,
        read_timeout=source.timeout,
        # We try again ourselves, and go on where it broke off.
        retries={"total_max_attempts": 1},
        signature_version=_botocore("", source).UNSIGNED if access.anonymous else None,
        # Stores of one's own seldom have a name for each bucket.
        s3={"addressing_style": "path"} if access.endpoint else None,
    )
    return session.create_client(
        "s3",
        endpoint_url=access.endpoint or None,
        region_name=access.region or session.get_config_variable("region") or _REGION,
        aws_access_key_id=access.access_key_id or None,
        aws_secret_access_key=access.secret_access_key or None,
        aws_session_token=access.session_token or None,
        verify=source.ca_file or None,
        config=config,
    )


def _botocore(name: str, source: Source) -> Any:
    from importlib import import_module

    try:
        return import_module(f"botocore.{name}".rstrip("."))
    except ModuleNotFoundError as error:
        raise ResourceError(
            f"resource {source.label}: s3:// addresses need the package botocore, which is not installed", _INSTALL
        ) from error


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
    def open(self, source: Source, wanted: Wanted = WHOLE, cancel: Cancel | None = None) -> Iterator[Answer]:
        """Ask for the file."""
        own = {"Accept": "*/*", "Accept-Encoding": "identity", **range_headers(wanted.start, wanted.validator)}
        unless = wanted.unless
        if unless and not wanted.start:
            own["If-None-Match" if is_tag(unless) else "If-Modified-Since"] = unless
        request = Request("GET", source.location, source.headers, own)
        with contextlib.ExitStack() as stack:
            try:
                trust = Trust(source.ca_file, source.registry.insecure)
                response = stack.enter_context(ask(request, silence=source.timeout, trust=trust, cancel=cancel))
                answer = _answer(source, response, wanted)
            except HttpError as error:
                raise _no(source, error) from error
            except RestartError:
                stack.close()
                answer = stack.enter_context(self.open(source, cancel=cancel))
            yield answer


def _answer(source: Source, response: Response, wanted: Wanted) -> Answer:
    status = response.status
    if status == 304:
        raise NotModifiedError
    piece = _piece(source, status, response.headers, wanted)
    if piece is not None:
        read = _nothing if piece.complete else _reader(response, piece.total)
        return Answer(read, piece.start, piece.total, piece.validator)
    said = f"the server answered {status} {response.reason}".rstrip()
    if status in PASSING:
        raise BrokenError(said, "the server is busy or broken: try again later")
    kind = DeniedError if status == 401 else ResourceError
    raise kind(f"resource {source.label}: {source.shown}: {said}", _HINTS.get(status, "check its address"))


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
