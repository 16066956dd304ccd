"""Prints the oldest versions that pyproject.toml allows, as constraints for pip."""

import re
from pathlib import Path

text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
for name, version in sorted(set(re.findall(r'"([A-Za-z][\w.-]*)>=([\d.]+)', text))):
    print(f"{name}=={version}")
