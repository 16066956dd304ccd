"""The ``pscnn`` command, with one clear sentence when its extra is not installed."""

import sys


def main() -> None:
    """Run the command line."""
    try:
        from pscnn.cli import app
    except ImportError as error:
        if error.name in ("typer", "rich", "click"):
            sys.exit(f"The command line needs {error.name}, which is not installed: pip install 'pscnn[training]'")
        raise
    app()


if __name__ == "__main__":
    main()
