"""Sends requests, steps and phases to ingerod. Nothing here raises into its caller, waits, or needs a daemon."""

from ingero import spans
from ingero.writer import Writer, default_writer

__all__ = ["Writer", "default_writer", "spans"]
__version__ = "0.1.0"
