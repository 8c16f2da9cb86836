"""Log lines by structlog, with run, node and host bound: key=value for people, JSON for machines, never a secret."""

from __future__ import annotations

import json as json_module
import logging
import time
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final, Protocol

from kubexm_exec.model import events as ev
from kubexm_exec.model.events import Event
from kubexm_exec.model.result import timestamp

_LINES: Final[Mapping[str, tuple[str, str]]] = {
    ev.RUN_STARTED: ("info", "run started"),
    ev.ACTION_STARTED: ("debug", "action started"),
    ev.ACTION_FORECAST: ("debug", "forecast"),
    ev.ACTION_OUTPUT: ("debug", "output"),
    ev.ACTION_RETRY: ("warning", "action is tried again"),
    ev.ACTION_FINISHED: ("info", "action finished"),
    ev.ACTION_UNDONE: ("info", "action undone"),
    ev.NODE_FINISHED: ("debug", "node finished"),
    ev.GRAPH_EXTENDED: ("info", "graph extended"),
    ev.NODE_MOVED: ("info", "node runs on another host"),
    ev.ACTION_MOVED: ("info", "action is done at another place"),
    ev.GATE_PAUSE: ("info", "pause before the next batch"),
    ev.RUN_STOPPING: ("warning", "run is stopping"),
    ev.RUN_FINISHED: ("info", "run finished"),
}
"""Level and text of each kind of event."""

_KEYS: Final = (
    "graph", "executor", "forks", "hosts", "nodes", "actions", "attempt", "attempts", "step", "state", "stream", "text",
    "delay", "kind", "status", "changed", "reason", "cause", "failureKind", "exitCode", "result", "by", "place",
    "seconds", "counts",
)  # fmt: skip
"""What a log line says of an event; whole outputs, diffs and tracebacks are in the result."""


class EventLog:
    """A subscriber that logs."""

    def __init__(self, run: str) -> None:
        self._log = get_logger(run=run)

    def __call__(self, event: Event) -> None:
        """Log one event."""
        if event.kind not in _LINES:
            return
        level, text = _LINES[event.kind]
        data = event.data
        if data.get("status") == "Failed":
            level = "error"
        bound: dict[str, Any] = {key: value for key, value in (("node", event.node), ("host", event.host)) if value}
        bound.update({key: data[key] for key in _KEYS if data.get(key) not in (None, "")})
        if data.get("message"):
            bound["detail"] = data["message"]
        if event.kind == ev.GRAPH_EXTENDED:
            bound["nodes"] = [node["id"] for node in data["nodes"]]
        getattr(self._log, level)(text, **bound)


NAME: Final = "kubexm"
"""The one logger of the standard library that we touch; a program that embeds us keeps all of its own."""
_HIDDEN: Final = frozenset({"event", "level", "timestamp", "exception"})


class Stream(Protocol):
    """What log lines are written to: a file, or the ``output`` of a console, which shows them without tearing."""

    def write(self, text: str, /) -> object:
        """Take a whole line."""

    def flush(self) -> object:
        """See that it gets there."""


def configure(level: str, json: bool, stream: Stream, *, mask: Callable[[Any], Any] | None = None) -> None:
    """Send log lines of that level and above to the stream, each in one write and masked. A second call replaces it.

    Without it lines go where the embedding program sends those of its own, by the logger ``kubexm``.
    """

    def masked(logger: Any, name: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
        found: Mapping[str, Any] = event if mask is None else mask(event)
        return found

    handler = _Handler(stream, lambda: _formatter(masked, _json if json else _people))
    logger = logging.getLogger(NAME)
    for old in [each for each in logger.handlers if isinstance(each, _Handler)]:
        logger.removeHandler(old)
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False


def _formatter(*last: Any) -> logging.Formatter:
    import structlog

    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.add_log_level, structlog.processors.TimeStamper(fmt=None)],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            *last,
        ],
    )


def get_logger(mask: Callable[[Any], Any] | None = None, **bound: Any) -> Any:
    """A structlog logger with these values bound; it can be had, and kept, before ``configure`` is called.

    ``mask`` takes the secrets of the run that logs out of its lines: other runs of the process have others.
    """
    import structlog

    def masked(logger: Any, name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        return event if mask is None else dict(mask(structlog.processors.format_exc_info(logger, name, event)))

    return structlog.wrap_logger(
        logging.getLogger(NAME),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.add_log_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.processors.TimeStamper(fmt=None),
            masked,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        **bound,
    )


class _Handler(logging.Handler):
    """Ours, so that a second ``configure`` finds it; a line that cannot be written is lost and nothing else."""

    def __init__(self, stream: Stream, make: Callable[[], logging.Formatter]) -> None:
        super().__init__()
        self._stream = stream
        self._make = make

    def format(self, record: logging.LogRecord) -> str:
        """The line; structlog takes a while to load, and most runs log nothing."""
        if self.formatter is None:
            self.formatter = self._make()
        return self.formatter.format(record)

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record) + "\n"
        try:
            self._stream.write(line)
            self._stream.flush()
        except UnicodeEncodeError:
            self._stream.write(line.encode("ascii", "backslashreplace").decode("ascii"))
            self._stream.flush()
        except (OSError, ValueError):
            # Nobody reads it any more. There is nowhere left to say so, and the run must go on.
            return


def _json(logger: Any, name: str, event: Mapping[str, Any]) -> str:
    from kubexm_exec.console.jsonl import json_line

    data = {"time": timestamp(event.get("timestamp")), "level": event.get("level"), "message": event.get("event")}
    more = {key: value for key, value in event.items() if key not in _HIDDEN}
    data.update({f"{key}_" if key in data else key: value for key, value in more.items()})
    if "exception" in event:
        data["exception"] = event["exception"]
    return json_line(data).removesuffix("\n")


def _people(logger: Any, name: str, event: Mapping[str, Any]) -> str:
    from kubexm_exec.console.text import text_lines
    from kubexm_exec.model.harmless import clean

    clock = time.strftime("%H:%M:%S", time.localtime(event.get("timestamp")))
    message, *more = text_lines(str(event.get("event", ""))) or [""]
    pairs = [f"{key}={_value(value)}" for key, value in event.items() if key not in _HIDDEN]
    first = f"{clock}  {event.get('level', ''):<9}  {'  '.join([message, *map(clean, pairs)])}".rstrip()
    rest = [*more, *text_lines(str(event.get("exception", "")))]
    return "\n".join([first, *(f"    {line}" for line in rest)])


def _value(value: object) -> str:
    """A value as one word; quoted if it would not be one."""
    text = value if isinstance(value, str) else str(value)
    return text if text and text.isprintable() and " " not in text else json_module.dumps(text, ensure_ascii=False)
