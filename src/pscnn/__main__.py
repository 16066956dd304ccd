"""The ``pscnn`` command, with one clear sentence when its extra is not installed."""

import io
import signal
import sys


def main() -> None:
    """Run the command line."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it ends as on Ctrl-C, and leaves nothing half-written
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what a terminal cannot show is written out
    try:
        from pscnn.cli import app

        app()
    except ImportError as error:
        if error.name in ("typer", "rich", "click"):
            sys.exit(f"The command line needs {error.name}, which is not installed: pip install 'pscnn[training]'")
        raise
    except KeyboardInterrupt:  # before or between the commands, which say more
        print("interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
