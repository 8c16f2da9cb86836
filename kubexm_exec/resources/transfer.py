"""Brings a file here piece by piece: goes on where it broke off, tries again, and gives up with a reason."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, Protocol

from msgspec import Struct

from kubexm_exec.control import Cancel
from kubexm_exec.http import attempts
from kubexm_exec.model.errors import CommandCancelled
from kubexm_exec.resources.cache import Part
from kubexm_exec.resources.source import ResourceError, Source

CHUNK: Final = 1 << 18

OnProgress = Callable[[int, int | None], None]
"""Called with how many bytes are here, and of how many if that is known."""


class BrokenError(Exception):
    """The transfer broke in a way that may be over in a moment."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


class DeniedError(ResourceError):
    """The server wants to know who asks, or no longer accepts what it was told."""


class NotModifiedError(Exception):
    """The server has nothing newer than what is here."""


class Answer(Struct, frozen=True):
    """The beginning of an answer: from which byte on it goes, and how long the whole is."""

    read: Callable[[int], bytes]
    """The next bytes, at most so many; none at the end. Raises BrokenError."""
    start: int
    total: int | None
    validator: str
    """What the server calls this version; empty if it does not say."""


class Wanted(Struct, frozen=True):
    """A file from a byte on, if it still is that version; or only if it is another than ``unless``."""

    start: int = 0
    validator: str = ""
    total: int | None = None
    unless: str = ""


WHOLE: Final = Wanted()


class Fetcher(Protocol):
    """One way of getting at files: over the web, from an object store."""

    def open(
        self, source: Source, wanted: Wanted = WHOLE, cancel: Cancel | None = None
    ) -> AbstractContextManager[Answer]:
        """Ask for a file; raises ResourceError for a no, BrokenError for what may pass, NotModifiedError."""


def bring(
    fetcher: Fetcher, source: Source, part: Part, *, cancel: Cancel, progress: OnProgress, unless: str = ""
) -> None:
    """Complete a part; raises ResourceError, NotModifiedError or CommandCancelled. What has arrived stays."""
    tries = attempts.Attempts(source.retries)
    while True:
        # Without a name for the version only the digest can tell whether the pieces fit together.
        start = part.size if part.validator or source.sha256 else 0
        try:
            wanted = Wanted(start, part.validator, part.total, unless) if start else Wanted(unless=unless)
            with fetcher.open(source, wanted, cancel) as answer:
                _receive(answer, source, part, cancel, progress)
            part.close(sync=True)
            return
        except BrokenError as error:
            part.close()
            pause = tries.broke(part.size, part.total)
            if pause is None:
                tried = f" ({tries.made} attempts)" if tries.made > 1 else ""
                raise ResourceError(
                    f"resource {source.label}: {source.shown}: {error.reason}{tried}", error.hint
                ) from error
            if cancel.wait(pause):
                raise CommandCancelled(f"while waiting to try {source.shown} again") from error
        finally:
            part.close()


def _receive(answer: Answer, source: Source, part: Part, cancel: Cancel, progress: OnProgress) -> None:
    _check_room(answer, source, part)
    part.begin(answer.start, answer.validator, answer.total)
    progress(part.size, answer.total)
    while data := answer.read(CHUNK):
        part.append(data)
        progress(part.size, answer.total)
        if part.size > attempts.LARGEST:
            raise _too_large(source, f"more than {attempts.LARGEST}")
        if cancel.is_set():
            raise CommandCancelled(f"while fetching {source.shown}")
    if answer.total is not None and part.size != answer.total:
        raise BrokenError(f"the connection ended after {part.size} of {answer.total} bytes")


def _check_room(answer: Answer, source: Source, part: Part) -> None:
    """Refuse what cannot be kept before it is brought."""
    if answer.total is None:
        return
    if answer.total > attempts.LARGEST:
        raise _too_large(source, str(answer.total))
    free = shutil.disk_usage(part.path.parent).free + part.size
    if answer.total > free:
        raise ResourceError(
            f"resource {source.label}: {source.shown} has {answer.total} bytes; the cache has room for {free}",
            "free some space there (kubexm resources prune), or set XDG_CACHE_HOME to another folder",
        )


def _too_large(source: Source, size: str) -> ResourceError:
    return ResourceError(
        f"resource {source.label}: {source.shown} has {size} bytes, more than the limit of {attempts.LARGEST}",
        "check its address",
    )
