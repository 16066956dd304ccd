"""Lists what `pip install 'pscnn[all]'` brings along, with licences; fails if one is not known to be permissive."""

import re
import sys
from importlib import metadata

PERMISSIVE = (
    *("MIT", "BSD", "Apache", "PSF", "Python Software Foundation", "MPL", "Mozilla", "ISC", "HPND", "Unlicense"),
    *("0BSD", "Zlib"),
)


def licence(package: metadata.Distribution) -> str:
    """As its metadata say, in a few words."""
    named = package.metadata.get("License-Expression")
    kinds = [c.split(" :: ")[-1] for c in package.metadata.get_all("Classifier", []) if c.startswith("License ::")]
    text = (package.metadata.get("License") or "").strip().splitlines()
    return named or ", ".join(kinds) or (text[0] if text else "unknown")


def needed(name: str, extras: tuple[str, ...], found: dict[str, metadata.Distribution]) -> None:
    """A package and all that it needs, if installed."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    try:
        package = metadata.distribution(name)
    except metadata.PackageNotFoundError:  # of another system or version of Python
        return
    if key in found and not extras:
        return
    found[key] = package
    for line in package.requires or []:
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)", line)
        if extra is None or extra[1] in extras:
            match = re.match(r"([\w.-]+)\s*(?:\[([\w,\s-]+)\])?", line)
            assert match is not None
            inner = tuple(part.strip() for part in (match[2] or "").split(",") if part.strip())
            needed(match[1], inner, found)


def main() -> None:
    """Print the list."""
    found: dict[str, metadata.Distribution] = {}
    needed("pscnn", ("training", "data", "plots"), found)
    doubtful = []
    for name, package in sorted(found.items()):
        words = licence(package)
        print(f"{name:28} {package.version:16} {words}")
        if not any(kind.lower() in words.lower() for kind in PERMISSIVE):
            doubtful.append(name)
    if doubtful:
        sys.exit(f"not known to be permissive: {', '.join(doubtful)}")


if __name__ == "__main__":
    main()
