"""Experiments as data, and the programs that run them."""

from __future__ import annotations

from pscnn.experiments._quickstart import quickstart

__all__ = ["quickstart"]
