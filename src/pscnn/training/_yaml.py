"""Files with settings, which come from anywhere."""

import re
from pathlib import Path
from typing import Any

import yaml

from pscnn._files import DEEPEST, plain_file
from pscnn.training._settings import ConfigError

LARGEST_FILE = 2**20
"""Bytes of a file with settings."""


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Settings from a YAML file, not yet checked."""
    path = Path(path)
    try:
        if plain_file(path).stat().st_size > LARGEST_FILE:
            raise ConfigError(f"{path} is too large for settings: more than {LARGEST_FILE} bytes")
        values = _from_yaml(path.read_text(encoding="utf-8"))
    except ConfigError:
        raise
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, LookupError, TypeError, RecursionError) as error:  # PyYAML raises them as well
        raise ConfigError(f"{path} is not valid YAML: {error}") from None
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise ConfigError(f"{path} must contain settings such as 'epochs: 50', got {type(values).__name__}")
    return values


def _from_yaml(text: str) -> Any:
    """What YAML says, unless it means something else than what it looks like, or more than settings can be.

    Names of parts (&a, *a) may stand for any amount of work; numbers such as 010 and 1:30 are 8 and 90 to YAML.
    """
    kind = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    for event in yaml.parse(text, kind):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise ValueError("nested too deeply")
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(f"write out what *{event.anchor} stands for")
    loader = kind(text)
    try:
        node = loader.get_single_node()
        seen: set[str] = set()
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            if key.value in seen:
                raise ValueError(f"{key.value} is given twice")
            if value.tag.endswith((":int", ":float")) and re.fullmatch(r"[-+]?0[\d_]+|.*:.*", value.value):
                raise ValueError(f"{key.value} is {value.value}: write a decimal number, or text in quotes")
            seen.add(str(key.value))
        return {} if node is None else loader.construct_document(node)
    finally:
        loader.dispose()
