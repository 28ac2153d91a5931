"""What the commands say of themselves."""

import argparse

import pytest

from plml.cli.command_line import _parser


def commands():
    """Every command by its name."""
    actions = _parser()._actions
    (found,) = (action for action in actions if isinstance(action, argparse._SubParsersAction))
    return found.choices


@pytest.mark.parametrize("command", commands())
def test_every_option_is_explained(command):
    """In words that can be read alone: none begins with "of" or names a default only."""
    parser = commands()[command]
    assert parser.description
    for action in parser._actions:
        text = action.help or ""
        assert len(text.split()) > 1, action.option_strings or action.dest
        assert not text.startswith(("of ", "to ", "default", "such as")), text
