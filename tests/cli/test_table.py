"""The command that prints tables without training."""

from __future__ import annotations

import re

from helpers import FLOW_SIZES
from typer.testing import CliRunner

from pscnn.cli import app


def test_the_table_of_sizes() -> None:
    done = CliRunner().invoke(app, ["table", "params", "--dataset", "jetflow"])
    assert done.exit_code == 0, done.output
    rows = {line.split()[0]: line.split()[1:4] for line in done.output.splitlines() if line.strip()}
    for method, (_, count) in FLOW_SIZES.items():
        assert rows[method][0] == f"{count:,}"
    assert rows["rsteer"] == ["185,282", "185", "k"]
    done = CliRunner().invoke(app, ["table", "params", "--dataset", "smoke-bandlimit"], env={"COLUMNS": "120"})
    assert done.exit_code == 0, done.output
    assert re.search(r"RSteer, 5 × 5 +[\d,]+ +27.75 M", done.output)
    assert len(re.findall(r"[35] × [35]", done.output)) == 12
    for arguments, message in ((["sizes"], "unknown table"), (["params", "--dataset", "rain"], "unknown data set")):
        wrong = CliRunner().invoke(app, ["table", *arguments])
        assert wrong.exit_code == 1
        assert message in wrong.output
