"""How curl and wget are told a request: by configuration that no process list shows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from kubexm_exec.http.messages import shown_url

_URL: Final = re.compile(r"https?://[^\s\"'<>]+")


def curl_lines(url: str, headers: Mapping[str, str]) -> Iterator[str]:
    """Lines of a configuration file of curl."""
    yield f"url = {_quoted(url)}"
    for name, value in headers.items():
        yield f"header = {_quoted(f'{name}: {value}')}"


def wget_lines(headers: Mapping[str, str], without: Collection[str] = ()) -> Iterator[str]:
    """Lines of a configuration file of wget, which takes the address elsewhere; some headers it sends itself."""
    for name, value in headers.items():
        if name == "User-Agent":
            yield f"user_agent = {value}"
        elif name not in without:
            yield f"header = {name}: {value}"
    yield "netrc = off"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def shown_texts(text: str) -> str:
    """The output of a tool, without possible secrets in addresses."""
    return _URL.sub(lambda found: shown_url(found[0]), text)


def head_of(text: str, *, ends: bool) -> tuple[int, dict[str, str]]:
    """Status and headers of the last answer in the log of a tool; those of a proxy may come before it.

    ``ends``: the tool logs the empty line at its end too, so that without it something is missing.
    """
    status, headers, ended = 0, dict[str, str](), True
    for line in text.splitlines():
        found = _HEAD.match(line)
        if found is not None:
            status, headers, ended = int(found[1]), {}, False
        elif not line.strip():
            ended = True
        elif not ended and ":" in line:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
    return (status, headers) if ended or not ends else (0, {})


_HEAD: Final = re.compile(r" *HTTP/[0-9.]+ (\d{3})")
