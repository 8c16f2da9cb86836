"""Small pieces of HTML that all sections of a report are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kubexm_exec.draw.status import look
from kubexm_exec.draw.text import escape
from kubexm_spec.diagnostics import plural
from kubexm_spec.duration import format_duration


def sign(status: str, label: str = "") -> str:
    """A status as symbol and word, in its colour."""
    one = look(status)
    return f'<span class="sign s-{one.key}"><b aria-hidden="true">{one.symbol}</b> {escape(label or one.label)}</span>'


def mark(status: str) -> str:
    """A status as symbol only; the word is its tooltip."""
    one = look(status)
    return f'<b class="sign s-{one.key}" title="{one.label}">{one.symbol}</b>'


def took(seconds: float | None) -> str:
    """A length of time for people; a dash if nothing ran."""
    return "–" if seconds is None else format_duration(max(0.0, seconds))


def section(ident: str, title: str, body: str, note: str = "") -> str:
    """A part of the page with a heading; nothing if it is empty."""
    if not body:
        return ""
    small = f" <small>{escape(note)}</small>" if note else ""
    return f'<section id="{ident}" class="part"><h2>{escape(title)}{small}</h2>\n{body}\n</section>\n'


def pre(text: str, css: str = "") -> str:
    """Text as it is."""
    return f'<pre class="{css}">{escape(text)}</pre>' if css else f"<pre>{escape(text)}</pre>"


def folded(title: str, body: str, *, opened: bool = False) -> str:
    """A part that is opened with a click."""
    return f"<details{' open' if opened else ''}><summary>{escape(title)}</summary>\n{body}\n</details>\n"


def host_list(hosts: Sequence[str], most: int = 6) -> str:
    """Names of hosts; the rest of a long list is folded."""
    if len(hosts) <= most:
        return ", ".join(f"<b>{escape(host)}</b>" for host in hosts)
    shown = ", ".join(f"<b>{escape(host)}</b>" for host in hosts[:most])
    rest = ", ".join(escape(host) for host in hosts[most:])
    return f'{shown} <details class="inline"><summary>and {len(hosts) - most} more</summary>{rest}</details>'


def table(heads: Iterable[str], rows: Iterable[Sequence[str]], css: str = "") -> str:
    """A table; heads and cells are HTML. It scrolls sideways where it is too wide."""
    head = "".join(f"<th>{cell}</th>" for cell in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>\n" for row in rows)
    start = f'<table class="{css}">' if css else "<table>"
    return f'<div class="wide">{start}<thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'


def last_lines(text: str, count: int, longest: int = 4000) -> tuple[str, int]:
    """The last lines of a text, and how many lines were left out before them."""
    lines = text.rstrip("\n").split("\n")
    kept = "\n".join(lines[-count:])
    return (kept if len(kept) <= longest else f"…{kept[-longest:]}"), max(0, len(lines) - count)


def diff(text: str, most: int = 400) -> str:
    """A unified diff with its added and removed lines marked."""
    lines = text.split("\n")
    css = {"+": "add", "-": "del", "@": "at"}
    parts = []
    for line in lines[:most]:
        kind = css.get(line[:1], "")
        parts.append(f'<span class="{kind}">{escape(line)}</span>' if kind else escape(line))
    if len(lines) > most:
        parts.append(f'<span class="at">… {plural(len(lines) - most, "more line")}</span>')
    return f'<pre class="diff">{chr(10).join(parts)}</pre>'
