"""Finds and renders templates: the user's folders come first, then the shipped ones."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from pathlib import Path, PurePosixPath
from typing import Any

from jinja2 import BaseLoader, Environment, Template, TemplateError, TemplateNotFound, TemplateSyntaxError
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context

from kubexm_exec.values.expressions import ExpressionError, Expressions, UnknownValueError
from kubexm_exec.values.sandbox import budget_of
from kubexm_spec.diagnostics import did_you_mean
from kubexm_spec.shipped import shipped_root

VARIABLE = "KUBEXM_TEMPLATES"
"""Environment variable with more folders of templates, separated as in PATH."""
_MOST_NAMES = 5000
"""A spec in a home folder must not make a suggestion walk the whole disk."""


_NO_CODE = compile("name = None\nblocks = {}\nroot = None\ndebug_info = ''", "<template>", "exec")


class TemplateFinder:
    """Looks a template's name up in some folders; the first one that has it wins."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self.folders: tuple[Path, ...] = tuple(dict.fromkeys(folders))

    @classmethod
    def for_spec(cls, base: str | Path, extra: Iterable[str | Path] = ()) -> TemplateFinder:
        """The folders for a spec that lies in ``base``: its own, given ones, the environment's, the shipped ones."""
        folder = Path(base)
        from_environment = [part for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]
        more = [Path(part).expanduser() for part in (*extra, *from_environment)]
        return cls([folder / "templates", folder, *more, shipped_root("templates")])

    def find(self, name: str) -> Path | None:
        """The file behind a name, or None; a name that climbs out of the folders is never found."""
        if not is_inside(name):
            return None
        for folder in self.folders:
            path = folder / name
            if path.is_file():
                return path
        return None

    def names(self) -> list[str]:
        """Names that exist, for suggestions; of very large folders only some."""
        found: set[str] = set()
        for folder in self.folders:
            for path in _files(folder):
                if len(found) >= _MOST_NAMES:
                    break
                found.add(path.relative_to(folder).as_posix())
        return sorted(found)


def is_inside(name: str) -> bool:
    """Whether a name stays below the folder it is looked up in."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\0" not in name


def _files(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(root, name) for name in sorted(files) if not name.startswith("."))


class _Loader(BaseLoader):
    """Loads by a TemplateFinder, so that include and extends obey the same rules."""

    def __init__(self, finder: TemplateFinder, expressions: Expressions) -> None:
        self._finder = finder
        self._expressions = expressions

    def load(self, environment: Environment, name: str, globals: MutableMapping[str, Any] | None = None) -> Template:
        """A template; one that was checked and has only names between its braces is rendered without being compiled."""
        text, _, is_current = self.get_source(environment, name)
        plain = self._expressions.plain_template(text)
        if plain is None:
            return super().load(environment, name, globals)
        template = Template.from_code(environment, _NO_CODE, dict(globals or {}), is_current)

        def render(context: Context) -> Iterator[str]:
            names = context.get_all()
            try:
                rendered = plain(names)
                budget_of(names).written(len(rendered))
            except (ExpressionError, TemplateError):  # the code of Jinja2 knows the line
                compiled = super(_Loader, self).load(environment, name, globals)
                yield from compiled.root_render_func(context)
            else:
                yield rendered

        template.root_render_func = render
        return template

    def get_source(self, environment: Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        path = self._finder.find(template)
        if path is None:
            raise TemplateNotFound(template)
        try:
            before = path.stat().st_mtime_ns
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ExpressionError(f"template {template}: {path} is not UTF-8 text") from error
        except OSError as error:
            raise ExpressionError(f"template {template}: {error.strerror or error}") from error

        def is_current() -> bool:
            try:
                return path.stat().st_mtime_ns == before
            except OSError:
                return False

        return text, str(path), is_current


class Templates:
    """Renders templates with the same rules as expressions; one object serves a whole run."""

    def __init__(self, expressions: Expressions, finder: Callable[[str], TemplateFinder]) -> None:
        self._expressions = expressions
        self._finder = finder
        self._environments: dict[str, tuple[TemplateFinder, Environment]] = {}
        self._lock = threading.Lock()

    def render(self, name: str, base: str, context: Mapping[str, Any]) -> str:
        """A template seen from the folder of a spec; raises ExpressionError that names the template and its line."""
        finder, environment = self._environment(base)
        try:
            with budget_of(context):
                if not is_inside(name):
                    raise ExpressionError(f"template {name!r}: a name must stay inside the templates folders")
                return environment.get_template(name).render(context)
        except UnknownValueError:
            raise
        except ExpressionError as error:
            raise ExpressionError(_placed(name, finder, error), error.fragment) from error
        except TemplateNotFound as error:
            raise ExpressionError(_not_found(str(error.name or error), finder, name)) from error
        except TemplateSyntaxError as error:
            raise ExpressionError(f"template {error.name or name}:{error.lineno}: {error.message}") from error
        except (TemplateError, SecurityError) as error:
            raise ExpressionError(_placed(name, finder, error)) from error
        except Exception as error:  # a filter on the wrong kind of value: whatever it raises is the template's fault
            raise ExpressionError(_placed(name, finder, error, kind=True)) from error

    def _environment(self, base: str) -> tuple[TemplateFinder, Environment]:
        with self._lock:
            if base not in self._environments:
                finder = self._finder(base)
                environment = self._expressions.environment.overlay(loader=_Loader(finder, self._expressions))
                self._environments[base] = finder, environment
            return self._environments[base]


def _not_found(name: str, finder: TemplateFinder, asked: str) -> str:
    where = "" if name == asked else f" (wanted by {asked})"
    guess = did_you_mean(name, finder.names())
    return f"there is no template {name!r}{where}; " + (guess or f"searched in {', '.join(map(str, finder.folders))}")


def _placed(name: str, finder: TemplateFinder, error: Exception, *, kind: bool = False) -> str:
    """The error's text after the template's name and, if it is known, its line."""
    text = str(getattr(error, "message", None) or error)
    if text.startswith("template "):
        return text
    line = ""
    for frame in traceback.extract_tb(error.__traceback__):
        for folder in finder.folders:
            if Path(frame.filename).is_relative_to(folder):
                name = Path(frame.filename).relative_to(folder).as_posix()
                line = f":{frame.lineno}"
                break
    return f"template {name}{line}: " + (f"{type(error).__name__}: {text}" if kind else text)
