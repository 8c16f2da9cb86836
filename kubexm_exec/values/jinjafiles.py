"""Template files that Jinja2 has to render: loaded by their finder, with errors that name the file and its line."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import BaseLoader, Environment, TemplateError, TemplateNotFound, TemplateSyntaxError

from kubexm_exec.values.finder import TemplateFinder, Trimming, is_unchanged, read_template
from kubexm_exec.values.limits import LimitError
from kubexm_exec.values.names import ExpressionError, UnknownValueError, budget_of
from kubexm_exec.values.sandbox import Sandbox
from kubexm_spec.diagnostics import did_you_mean


class _Loader(BaseLoader):
    """Loads by a TemplateFinder, so that include and extends obey the same rules."""

    def __init__(self, finder: TemplateFinder) -> None:
        self._finder = finder

    def get_source(self, environment: Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        path = self._finder.find(template)
        if path is None:
            raise TemplateNotFound(template)
        text, changed = read_template(template, path)
        return text, str(path), lambda: is_unchanged(path, changed)


class JinjaFiles:
    """Renders the templates of one finder, trimmed in one way."""

    def __init__(self, environment: Sandbox, finder: TemplateFinder, trimming: Trimming) -> None:
        self._finder = finder
        self._environment = environment.overlay(
            loader=_Loader(finder), trim_blocks=trimming.trim_blocks, lstrip_blocks=trimming.lstrip_blocks
        )

    def render(self, name: str, context: Mapping[str, Any]) -> str:
        """A template; raises ExpressionError that names the template and its line."""
        finder = self._finder
        try:
            with budget_of(context):
                return self._environment.get_template(name).render(context)
        except UnknownValueError:
            raise
        except ExpressionError as error:
            raise ExpressionError(_placed(name, finder, error), error.fragment) from error
        except TemplateNotFound as error:
            raise ExpressionError(_not_found(str(error.name or error), finder, name)) from error
        except TemplateSyntaxError as error:
            raise ExpressionError(f"template {error.name or name}:{error.lineno}: {error.message}") from error
        except (TemplateError, LimitError) as error:
            raise ExpressionError(_placed(name, finder, error)) from error
        except Exception as error:  # a filter on the wrong kind of value: whatever it raises is the template's fault
            raise ExpressionError(_placed(name, finder, error, kind=True)) from error


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
