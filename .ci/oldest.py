"""Prints the oldest versions that pyproject.toml allows users of the package, as constraints for pip."""

import re
from pathlib import Path

text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
text = re.sub(r"(?ms)^dev = \[.*?^\]", "", text)  # of tools there may be older ones beside: torch brings its own Triton
for name, version, where in sorted(set(re.findall(r'"([A-Za-z][\w.-]*)>=([\d.]+)(; python_version [^"]*)?"', text))):
    print(f"{name}=={version}{where}")
