"""The command line, called in this process."""

from plml.cli import main


def run(*arguments):
    """``plml`` with some arguments; its exit status."""
    return main([str(argument) for argument in arguments])
