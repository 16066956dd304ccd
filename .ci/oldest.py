"""Prints the oldest versions that pyproject.toml allows users of the package, as constraints for pip."""

import re
from pathlib import Path

text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
text = re.sub(r"(?ms)^dev = \[.*?^\]", "", text)  # of tools there may be older ones beside: torch 2.4 brings its Triton
for name, version in sorted(set(re.findall(r'"([A-Za-z][\w.-]*)>=([\d.]+)', text))):
    print(f"{name}=={version}")
