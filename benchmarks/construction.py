"""How long importing the library and building networks takes, each in a fresh process with nothing cached on disk.

    python benchmarks/construction.py            # prints a table
    python benchmarks/construction.py --json FILE

The networks are the convolutions of the paper's double-digit network over O(2) and of its 28³ residual network over
SO(3) and O(3), partially equivariant, band-limit 2.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

IMPORT = "import time; now = time.perf_counter; t = now(); import torch; u = now(); import pscnn; v = now()"
PRELUDE = (
    IMPORT
    + """
from pscnn import FieldType, Likelihood, nn
from pscnn.groups import parse, direct_sum

def gate(group, copies, frequency):
    return nn.GatedNonlinearity(FieldType(group, copies * [direct_sum(list(group.irreps(frequency)))]))
"""
)
PROGRAMS = {
    "O(2) double digits": """
H = parse("O(2)")
fields = FieldType(H, [H.trivial])
for copies, frequency, kernel in ((6, 2, 7), (12, 3, 5), (24, 4, 3), (36, 4, 3), (36, 2, 3)):
    g = gate(H, copies, frequency)
    nn.Conv2d(fields, g.in_type, kernel, likelihood=Likelihood(H, 2)); nn.BatchNorm(g.in_type)
    fields = g.out_type
nn.Conv2d(fields, FieldType(H, 48 * [H.trivial]), 1, likelihood=Likelihood(H, 2))
""",
}
for _name in ("SO(3)", "O(3)"):
    PROGRAMS[f"{_name} 28³ residual"] = f"""
H, c = parse("{_name}"), 6
top = 3 if H.name == "SO(3)" else 2
one, out = FieldType(H, [H.trivial]), FieldType(H, 8 * c * [H.trivial])
a, b, d, e, f = (gate(H, n * c, min(l, top)) for n, l in ((1, 2), (2, 3), (4, 9), (6, 9), (6, 2)))
x, y, z = (Likelihood(H, 2) for _ in range(3))
for source, target, kernel, density in (
    (one, a.in_type, 7, None), (a.out_type, b.in_type, 5, x), (one, b.in_type, 7, x),
    (b.out_type, d.in_type, 3, None), (d.out_type, e.in_type, 3, y), (b.out_type, e.in_type, 3, y),
    (e.out_type, f.in_type, 3, None), (f.out_type, out, 1, z), (e.out_type, out, 3, z),
):
    nn.Conv3d(source, target, kernel, likelihood=density)
"""


def measure(program: str) -> float:
    """Seconds that a program reports, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    programs = {
        "import torch": IMPORT + "; print(u - t)",
        "import pscnn after torch": IMPORT + "; print(v - u)",
    }
    for name, text in PROGRAMS.items():
        programs[name] = PRELUDE + "t = time.perf_counter()\n" + text + "print(time.perf_counter() - t)"
    measure(programs["import torch"])  # fill the file cache
    rows = {name: [measure(text) for _ in range(arguments.repeats)] for name, text in programs.items()}
    print(f"{'':28} {'median':>8} {'min':>8} {'max':>8}   seconds, {arguments.repeats} fresh processes each")
    for name, times in rows.items():
        print(f"{name:28} {statistics.median(times):8.3f} {min(times):8.3f} {max(times):8.3f}")
    if arguments.json:
        import torch

        machine = {
            "processor": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "torch": torch.__version__,
        }
        arguments.json.write_text(json.dumps({"machine": machine, "seconds": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
