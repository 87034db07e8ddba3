"""Errors a user can cause, each with the exit code of the program that meets it.

EngineCoreError (1)
├── UsageError (2)    a wrong name, option, port or path
└── StartupError (1)  the engine did not become ready
"""

from __future__ import annotations


class EngineCoreError(Exception):
    """Base of the errors that end the program with one clear line; the message is that line."""

    exit_code = 1


class UsageError(EngineCoreError):
    """The user asked for something that does not exist or cannot be had here."""

    exit_code = 2


class StartupError(EngineCoreError):
    """The engine core ended or stayed silent before it was ready."""


class RequestError(EngineCoreError):
    """A request the server refuses with status 400; the message goes to the client."""
