"""Files on a host that is reached by SSH, written and read by commands."""

from __future__ import annotations

import base64
import contextlib
from abc import abstractmethod
from typing import BinaryIO, Final

from kubexm_exec.connectors.base import OnOutput, Sink
from kubexm_exec.connectors.ssh.feed import Feed, feed_stream
from kubexm_exec.connectors.ssh.filescripts import (
    CANNOT_DECODE,
    SMALL,
    Writing,
    check_path,
    file_error,
    is_lines,
    reading,
)
from kubexm_exec.connectors.ssh.shell import Ending, Exchange, Job
from kubexm_exec.control import Cancel, Deadline, raise_if_over
from kubexm_exec.model.errors import CommandTimedOut, ConnectorError

CLEAN_UP_TIME: Final = 10.0
"""Seconds for stopping or removing something on the host once nobody waits for it any more."""
MOST_ERRORS: Final = 1 << 16
"""Bytes kept of what a command of ours complains about."""
_ALL: Final = 1 << 62


class FileWork:
    """The part of a connector that is about files."""

    @abstractmethod
    def _do(
        self,
        job: Job,
        deadline: Deadline,
        cancel: Cancel,
        *,
        feed: Feed | None = None,
        size: int | None = None,
        document: bytes | None = None,
        max_output: int = 1 << 20,
        on_output: OnOutput | None = None,
    ) -> tuple[Exchange, Ending]:
        """Run a job to its end."""

    def put(
        self,
        source: bytes | BinaryIO,
        path: str,
        *,
        mode: int | None = None,
        owner: str | None = None,
        group: str | None = None,
        deadline: Deadline,
        cancel: Cancel,
    ) -> None:
        """Write a file atomically; a link is replaced by the file, not followed."""
        check_path(path)
        raise_if_over(deadline, cancel)
        writing = Writing(path, mode, owner, group)
        if (
            isinstance(source, bytes)
            and len(source) <= SMALL
            and self._put_small(writing, source, path, deadline, cancel)
        ):
            return

        feed = feed_stream(source, deadline, cancel)
        try:
            if isinstance(source, bytes):
                self._do_file(writing.sized(len(source)), path, deadline, cancel, feed=feed, size=len(source))
            else:
                self._do_file(writing.fill(), path, deadline, cancel, feed=feed)
                self._do_file(writing.finish(), path, deadline, cancel)
        except BaseException:
            # Also if we were told to stop: what is half written is of use to nobody.
            with contextlib.suppress(ConnectorError, CommandTimedOut):
                self._do(writing.remove(), Deadline.after(CLEAN_UP_TIME), Cancel())
            raise

    def get(self, path: str, *, deadline: Deadline, cancel: Cancel, limit: int | None = None) -> bytes:
        """The bytes of a regular file, at most ``limit`` of them."""
        check_path(path)
        raise_if_over(deadline, cancel)
        return self._do_file(reading(path, limit), path, deadline, cancel).stdout.kept()

    def stream(self, path: str, sink: Sink, *, deadline: Deadline, cancel: Cancel) -> None:
        """Hand the bytes of a regular file on piece by piece."""
        check_path(path)
        raise_if_over(deadline, cancel)

        def take(name: str, data: bytes) -> None:
            if name == "stdout":
                sink(data)

        job = reading(path, None)
        exchange, ending = self._do(job, deadline, cancel, max_output=MOST_ERRORS, on_output=take)
        if ending.exit_code != 0:
            raise file_error(exchange.complaints.decode("utf-8", "replace"), path)

    def _put_small(self, writing: Writing, data: bytes, path: str, deadline: Deadline, cancel: Cancel) -> bool:
        """In one round trip; False, and nothing is done, if the host cannot read what it is sent."""
        if is_lines(data):
            self._do_file(writing.whole(), path, deadline, cancel, document=data)
            return True
        exchange, ending = self._do(
            writing.decoded(len(data)), deadline, cancel, document=base64.encodebytes(data), max_output=MOST_ERRORS
        )
        if ending.exit_code not in (0, CANNOT_DECODE):
            raise file_error(exchange.complaints.decode("utf-8", "replace"), path)
        return ending.exit_code == 0

    def _do_file(
        self,
        job: Job,
        path: str,
        deadline: Deadline,
        cancel: Cancel,
        *,
        feed: Feed | None = None,
        size: int | None = None,
        document: bytes | None = None,
    ) -> Exchange:
        exchange, ending = self._do(job, deadline, cancel, feed=feed, size=size, document=document, max_output=_ALL)
        if ending.exit_code != 0:
            raise file_error(exchange.complaints[-MOST_ERRORS:].decode("utf-8", "replace"), path)
        return exchange
