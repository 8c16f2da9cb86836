"""Fetches from object stores that speak S3, by botocore: an extra, loaded only when an s3:// address is asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from kubexm_exec.control import Cancel
from kubexm_exec.http.ranges import RestartError, piece_of
from kubexm_exec.resources.source import ResourceError, Source
from kubexm_exec.resources.transfer import Answer, BrokenError, NotModifiedError

_INSTALL: Final = "pip install 'kubexm[s3]'"
_REGION: Final = "us-east-1"
_HINTS: Final = {
    "403": "access denied: check accessKeyId, secretAccessKey and the permissions of the bucket",
    "404": "there is no such object: check the bucket and the key in the address",
    "InvalidAccessKeyId": "the store does not know this key: check accessKeyId",
    "SignatureDoesNotMatch": "the key is wrong: check secretAccessKey",
}


class S3Fetcher:
    """Files behind s3://BUCKET/KEY."""

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
        """Ask for the object."""
        parts = urlsplit(source.location)
        asked: dict[str, Any] = {"Bucket": parts.netloc, "Key": unquote(parts.path.lstrip("/"))}
        if start:
            asked["Range"] = f"bytes={start}-"
            if validator:
                asked["IfMatch"] = validator
        elif unless:
            asked["IfNoneMatch"] = unless
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
            raise _no(source, error.response.get("Error", {}), status) from error
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
                piece = piece_of(
                    answered["HTTPStatusCode"],
                    answered["HTTPHeaders"],
                    start,
                    validator,
                    total,
                    verified=bool(source.sha256),
                )
            except RestartError:
                piece = None
            if piece is not None:
                yield Answer(_reader(body, exceptions), piece.start, piece.total, piece.validator)
                return
        if not start:
            raise BrokenError(f"the store answered {answered['HTTPStatusCode']}", "is the endpoint right?")
        with self.open(source) as answer:
            yield answer


def _reader(body: Any, exceptions: Any) -> Callable[[int], bytes]:
    def read(size: int) -> bytes:
        try:
            data: bytes = body.read(size)
            return data
        except (exceptions.BotoCoreError, OSError) as error:
            raise BrokenError(f"the connection broke: {error}") from error

    return read


def _no(source: Source, said: Any, status: int) -> Exception:
    code = str(said.get("Code", status))
    words = f"{code}: {said.get('Message', '')}".rstrip(": ")
    if status >= 500 or code in ("SlowDown", "RequestTimeout"):
        return BrokenError(f"the store answered {words}", "the store is busy: try again later")
    hint = _HINTS.get(code, _HINTS.get(str(status), "check its address and `s3`"))
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
