"""Prints the oldest versions that pyproject.toml allows users of the package, as constraints for pip.

With the word "layers" those of the package without extras.
"""

import re
import sys
from pathlib import Path

text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
text = re.sub(r"(?ms)^dev = \[.*?^\]", "", text)  # of tools there may be older ones beside: torch brings its own Triton
if "layers" in sys.argv:
    text = re.search(r"(?m)^dependencies = .*$", text)[0]
found: dict[tuple[str, str], tuple[int, ...]] = {}
for name, version, where in re.findall(r'"([A-Za-z][\w.-]*)>=([\d.]+)(; python_version [^"]*)?"', text):
    numbers = tuple(map(int, version.split(".")))
    found[name, where] = max(found.get((name, where), numbers), numbers)  # that suits all extras together
for (name, where), version in sorted(found.items()):
    print(f"{name}=={'.'.join(map(str, version))}{where}")
