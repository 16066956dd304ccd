"""Commands whose options are the settings of a task: made when the task is named, so that help shows no others."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from pscnn.cli._app import command, fail

if TYPE_CHECKING:
    from pscnn.training import Option, Settings

PANELS = {"task": "Task", "network": "Network", "density": "Densities", "optimiser": "Optimiser", "run": "Run"}


NO_TASK = "TASK"
"""What train is called with if options come first and name no task."""


class NamedCommands(TyperGroup):
    """A group whose commands are made when they are asked for; ``list_commands`` names them."""

    def make(self, name: str) -> Callable[..., Any]:
        """The function of a command, with its options in its signature."""
        raise NotImplementedError

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name, or a message that names all."""
        function = command(self.make)(cmd_name)
        single = typer.Typer(rich_markup_mode="rich", add_completion=False)
        single.command(cmd_name, cls=_SettingsCommand)(function)
        return typer.main.get_command(single)


class _SettingsCommand(TyperCommand):
    """Says which tasks have an option that this one has not."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        resumed = any(word.split("=", 1)[0] == "--resume" for word in args)  # the parser takes its words away
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            option = getattr(error, "option_name", None)
            if type(error).__name__ != "NoSuchOption" or option is None:
                raise
            name = str(option).lstrip("-").removeprefix("no-").replace("-", "_")
            from pscnn.training import task_names, task_type

            have = [task for task in task_names() if name in task_type(task).settings_type.options()]
            text = f"{self.name} has no option {option}"
            if self.name == NO_TASK and resumed:
                text = "--resume takes all settings from the run; remove the other options"
            elif self.name == NO_TASK:
                text = f"{option} needs a task: pscnn train TASK {option} …"
            fail(text + (f"; tasks with this option: {', '.join(have)}" if have and not resumed else ""), 2)


def with_settings(function: Callable[..., Any], types: Sequence[type[Settings]]) -> Callable[..., Any]:
    """Give a command one option per setting of some tasks; it gets those that were given as ``settings``."""
    known: dict[str, list[Option]] = {}
    for kind in types:
        for name, option in kind.options().items():
            known.setdefault(name, []).append(option)

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        given = {name: kwargs.pop(name) for name in known}
        return function(*args, settings={k: v for k, v in given.items() if v is not None}, **kwargs)

    own = [p for name, p in inspect.signature(function, eval_str=True).parameters.items() if name != "settings"]
    options = [_parameter(name, found) for name, found in known.items()]
    wrapped.__signature__ = inspect.Signature([*own, *options])  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in [*own, *options]}
    return wrapped


def _parameter(name: str, found: list[Option]) -> inspect.Parameter:
    first = found[0]
    text, choices = first.text, first.choices
    if choices:
        text += f" One of {', '.join(str(choice) for choice in choices if choice != '')}."
    defaults = dict.fromkeys(str(option.default) for option in found if option.default not in (None, ""))
    if defaults:
        text += f" Default: {' or '.join(defaults)}."
    info: Any = typer.Option(
        help=text,
        rich_help_panel=PANELS[first.section],
        show_default=False,
        autocompletion=(lambda: [str(choice) for choice in choices]) if choices else None,
    )
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=None, annotation=Annotated[first.kind | None, info])
