"""Lets the manual show the docstrings' "Example:" as code, as it does with "Examples:"."""

from __future__ import annotations

import re
from typing import Any

import griffe


class ExampleSections(griffe.Extension):
    """The generator reads a lone example as a remark in Markdown, in which ``>>>`` would be a quotation."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rename the section of one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"(?m)^Example:$", "Examples:", obj.docstring.value)
