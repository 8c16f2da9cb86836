"""The one door to resources: bundle, then cache, then the source; one download however many ask at once."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from kubexm_exec.control import Cancel, Deadline, raise_if_over
from kubexm_exec.resources.bundle import Bundle
from kubexm_exec.resources.cache import Cache, MismatchError, digest_of
from kubexm_exec.resources.source import LocalResource, ResourceError, Source
from kubexm_exec.resources.transfer import DeniedError, Fetcher, NotModifiedError, OnProgress, bring

_TELL: Final = 0.1
"""Seconds between two reports of a download's progress."""


class ResourceStore:
    """Finds and fetches resources; shared by all threads of a run."""

    def __init__(self, cache: Cache | None = None, bundle: Path | None = None, *, offline: bool = False) -> None:
        """``offline``: what is neither in the bundle nor a file of this machine cannot be had."""
        self.cache = cache or Cache()
        self._folder = bundle
        self._offline = offline
        self._bundles: dict[Path, Bundle] = {}
        self._lock = threading.Lock()
        self._looking: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._flights: dict[str, _Flight] = {}
        self._done: dict[str, LocalResource] = {}

    def known(self, source: Source) -> LocalResource | None:
        """The file, if it can be had without asking anybody; raises ResourceError if that should be so and is not."""
        with self._lock:
            looking = self._looking[source.key]
        # One at a time: a large file is read once, not once for each host.
        with looking:
            found = self._done.get(source.key) or self._here(source)
            if found is not None:
                self._done[source.key] = found
        return found

    def made_for(self) -> set[str]:
        """The variants that the index of the run's bundle names; raises ResourceError."""
        entries = self._bundle(self._folder).entries if self._folder is not None else []
        return {entry.variant for entry in entries}

    def bundled(self, source: Source) -> bool:
        """Whether the bundle of the run has it."""
        found = self.known(source) if self._folder is not None else None
        return found is not None and found.where == "bundle"

    def _here(self, source: Source) -> LocalResource | None:
        if source.kind == "path":
            return _local(source)
        if self._folder is not None:
            found = self._bundle(self._folder).find(source)
            if found is not None:
                return found
        if source.kind == "bundle":
            found = self._bundle(Path(source.location)).find(source, by_name=True)
            if found is None:
                wanted = f" with sha256 {source.sha256}" if source.sha256 else ""
                raise ResourceError(
                    f"resource {source.label}: it is not in the bundle {source.location}{wanted}",
                    "put it there: kubexm resources bundle SPEC -o DIR",
                )
            return found
        return self.cache.find(source.sha256, source.filename) if source.sha256 and not self._offline else None

    def _bundle(self, folder: Path) -> Bundle:
        with self._lock:
            if folder not in self._bundles:
                self._bundles[folder] = Bundle(folder)
            return self._bundles[folder]

    def fetch(
        self,
        source: Source,
        *,
        deadline: Deadline | None = None,
        cancel: Cancel | None = None,
        progress: OnProgress | None = None,
    ) -> LocalResource:
        """The verified file, fetched once for all. Raises ResourceError, CommandTimedOut or CommandCancelled."""
        found = self.known(source)
        if found is not None:
            return found
        if self._offline:
            raise ResourceError(
                f"resource {source.label}: it is not in the bundle {self._folder or ''}".rstrip(),
                "nothing is fetched offline: create the bundle again where there is a network",
            )
        with self._lock:
            flight = self._flights.get(source.key)
            if flight is None or not flight.join():
                flight = self._flights[source.key] = _Flight(source, self._download)
                flight.join()
                flight.start()
        try:
            return flight.wait(deadline or Deadline(), cancel or Cancel(), progress)
        finally:
            flight.leave()

    def _download(self, source: Source, cancel: Cancel, progress: OnProgress) -> LocalResource:
        try:
            found = self._alone(source, cancel, progress)
        except OSError as error:
            raise ResourceError(
                f"resource {source.label}: the cache {self.cache.folder}: {(error.strerror or str(error)).lower()}",
                "free some space there (kubexm resources prune), or set XDG_CACHE_HOME to another folder",
            ) from error
        self._done[source.key] = found
        return found

    def _alone(self, source: Source, cancel: Cancel, progress: OnProgress) -> LocalResource:
        with self.cache.locked(source.key, cancel):
            # Another process may have brought it while we waited for the lock.
            found = self.cache.find(source.sha256, source.filename) if source.sha256 else None
            fetch = self._bring_image if source.kind == "image" else self._bring
            return found or fetch(source, cancel, progress)

    def _bring_image(self, source: Source, cancel: Cancel, progress: OnProgress) -> LocalResource:
        """The archive of an image; its blobs are files of the cache, so that a killed download goes on."""
        from kubexm_exec.resources.images import Registries, write_archive

        registries = Registries(source, cancel)
        image = registries.find()
        record = self.cache.record(source)
        held = self.cache.find(record.sha256, source.filename) if record is not None else None
        if record is not None and held is not None and record.validator == image.digest:
            return held
        total, done = sum(blob.size for blob in image.blobs), 0
        blobs: dict[str, Path] = {}
        for blob in image.blobs:
            told = partial(_part_of, progress, done, total)
            try:
                found = self._alone(registries.blob(image, blob), cancel, told)
            except DeniedError:
                registries.forget(image.place)
                found = self._alone(registries.blob(image, blob), cancel, told)
            if found.size != blob.size:
                raise ResourceError(
                    f"resource {source.label}: {source.location}: its manifest says that {blob.digest} has {blob.size} "
                    f"bytes, and it has {found.size}",
                    "the registry is damaged: use another mirror",
                )
            blobs[blob.digest] = found.path
            done += blob.size
            progress(done, total)
        part = self.cache.part(source)
        part.begin(0, image.digest)
        try:
            write_archive(part, image, blobs)
            part.close(sync=True)
        finally:
            part.close()
        return self.cache.accept(part, source, image.digest)

    def _bring(self, source: Source, cancel: Cancel, progress: OnProgress) -> LocalResource:
        fetcher = _fetcher(source)
        part = self.cache.part(source)
        resumed = part.size > 0
        record = None if source.sha256 else self.cache.record(source)
        held = self.cache.find(record.sha256, source.filename) if record is not None else None
        unless = record.validator if record is not None and held is not None else ""
        try:
            bring(fetcher, source, part, cancel=cancel, progress=progress, unless=unless)
        except NotModifiedError:
            if held is None:
                raise ResourceError(f"resource {source.label}: {source.shown} sent nothing", "try again") from None
            return held
        try:
            return self.cache.accept(part, source, part.validator)
        except MismatchError:
            if not resumed:
                raise
            # The parts may be of two versions: once more, from the beginning.
            part = self.cache.part(source)
            bring(fetcher, source, part, cancel=cancel, progress=progress)
            return self.cache.accept(part, source, part.validator)


class _Flight:
    """One download, and all who wait for it. It belongs to none of them: one that gives up harms no other."""

    def __init__(self, source: Source, work: Callable[[Source, Cancel, OnProgress], LocalResource]) -> None:
        self._source = source
        self._work = work
        self._news = threading.Condition()
        self._cancel = Cancel()
        self._waiting = 0
        self._over = False
        self._progress: tuple[int, int | None] = (0, None)
        self._result: LocalResource | None = None
        self._error: BaseException | None = None
        self._next = 0.0

    def start(self) -> None:
        """Take off. The thread is a daemon's: what arrives stays, so that a program need not wait for it to end."""
        threading.Thread(target=self._run, name=f"kubexm-fetch-{self._source.name}", daemon=True).start()

    def join(self) -> bool:
        """Wait for it too; False if it is too late."""
        with self._news:
            if self._over or self._cancel.is_set():
                return False
            self._waiting += 1
            return True

    def leave(self) -> None:
        """Wait no more; the last one ends the download."""
        with self._news:
            self._waiting -= 1
            last = self._waiting == 0
        if last:
            self._cancel.set()

    def _run(self) -> None:
        try:
            self._result = self._work(self._source, self._cancel, self._tell)
        except BaseException as error:  # noqa: BLE001 - it is raised again by everybody who waits
            self._error = error
        with self._news:
            self._over = True
            self._news.notify_all()

    def _tell(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        if now < self._next and done != total:
            return
        self._next = now + _TELL
        with self._news:
            self._progress = (done, total)
            self._news.notify_all()

    def wait(self, deadline: Deadline, cancel: Cancel, progress: OnProgress | None) -> LocalResource:
        remove = cancel.on_set(self._wake)
        told: tuple[int, int | None] = (0, None)
        try:
            while True:
                with self._news:
                    self._news.wait_for(partial(self._has_news, told, cancel), deadline.left())
                    over, told = self._over, self._progress
                if over:
                    break
                raise_if_over(deadline, cancel, f"while fetching {self._source.shown}")
                if progress is not None:
                    progress(*told)
        finally:
            remove()
        if self._result is not None:
            return self._result
        if isinstance(self._error, ResourceError):
            # Each one raises its own: a traceback belongs to one thread.
            raise ResourceError(self._error.message, self._error.hint) from self._error
        raise RuntimeError(f"the download of {self._source.shown} broke") from self._error

    def _has_news(self, told: tuple[int, int | None], cancel: Cancel) -> bool:
        return self._over or cancel.is_set() or told != self._progress

    def _wake(self) -> None:
        with self._news:
            self._news.notify_all()


def _part_of(progress: OnProgress, before: int, total: int, done: int, _: int | None) -> None:
    progress(before + done, total)


def _local(source: Source) -> LocalResource:
    path = Path(source.location)
    try:
        digest, size = digest_of(path)
    except OSError as error:
        raise ResourceError(
            f"resource {source.label}: {path} cannot be read: {(error.strerror or str(error)).lower()}",
            "check its `path`; it is relative to the file that contains it",
        ) from error
    if source.sha256 and digest != source.sha256:
        raise MismatchError(source, digest)
    return LocalResource(path, digest, size, "path")


def _fetcher(source: Source) -> Fetcher:
    from kubexm_exec.resources.web import S3Fetcher, WebFetcher

    return S3Fetcher() if source.kind == "s3" else WebFetcher()
