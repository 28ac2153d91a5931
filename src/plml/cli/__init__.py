"""The command line."""

from plml.cli.command_line import main

__all__ = ["main"]
