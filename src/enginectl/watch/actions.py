"""What triggers do beside recording: run a program, call a webhook. Neither ever holds up the observation."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from enginectl.watch.triggers import CommandAction, WebhookAction

MAX_RUNNING = 8
"""Commands and webhooks at once; more are refused, and said."""
GRACE_SECONDS = 1.0


class Command:
    """One program in a process group of its own, ended with all its children when its time is up."""

    def __init__(self, action: CommandAction, told: Mapping[str, str]) -> None:
        named = {f"ENGINECTL_{key.upper()}": value for key, value in told.items()}
        self.name = action.argv[0]
        self._ends = time.monotonic() + action.timeout_seconds
        self._killed = False
        self._child = subprocess.Popen(
            action.argv,
            env={**os.environ, **named},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def poll(self, *, closing: bool = False) -> str | None:
        """None while it runs, then how it ended."""
        code = self._child.poll()
        if code is None and (closing or time.monotonic() >= self._ends):
            self._kill()
            code = self._child.wait()
        if code is None:
            return None
        return f"{self.name}: " + ("ended, its time was up" if self._killed else f"exit {code}")

    def _kill(self) -> None:
        self._killed = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)


class Webhook:
    """One POST in a thread of its own. Redirects and proxies are not followed."""

    def __init__(self, action: WebhookAction, told: Mapping[str, str]) -> None:
        parts = urlsplit(action.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self.name = f"{parts.scheme}://{parts.hostname}"
        self._ends = time.monotonic() + action.timeout_seconds
        self._connection = kind(parts.hostname or "", parts.port, timeout=action.timeout_seconds)
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._body = msgspec.json.encode(dict(told))
        self._outcome = ""
        self._thread = threading.Thread(target=self._post, name="webhook", daemon=True)
        self._thread.start()

    def _post(self) -> None:
        try:
            self._connection.request("POST", self._path, self._body, {"Content-Type": "application/json"})
            self._outcome = f"{self.name}: status {self._connection.getresponse().status}"
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._outcome = f"{self.name}: {error or type(error).__name__}"
        finally:
            self._connection.close()

    def poll(self, *, closing: bool = False) -> str | None:
        """None while it runs, then how it ended."""
        if self._thread.is_alive() and (closing or time.monotonic() >= self._ends):
            with contextlib.suppress(OSError, AttributeError):
                self._connection.sock.shutdown(2)
            self._thread.join(GRACE_SECONDS)
            return f"{self.name}: no answer in time"
        return None if self._thread.is_alive() else self._outcome


class Runner:
    """All commands and webhooks in flight."""

    def __init__(self) -> None:
        self._running: list[Command | Webhook] = []

    def start(self, action: CommandAction | WebhookAction, told: Mapping[str, str]) -> str:
        """Begin one; "" or why it was not begun."""
        if len(self._running) >= MAX_RUNNING:
            return f"{MAX_RUNNING} actions are still running; one more was refused"
        try:
            begun = Command(action, told) if isinstance(action, CommandAction) else Webhook(action, told)
        except (OSError, ValueError, RuntimeError) as error:
            return f"an action could not be started: {error}"
        self._running.append(begun)
        return ""

    def poll(self, *, closing: bool = False) -> list[str]:
        """How those ended that have ended since the last look; `closing` ends the rest."""
        outcomes = [(each, each.poll(closing=closing)) for each in self._running]
        self._running = [each for each, outcome in outcomes if outcome is None]
        return [outcome for _, outcome in outcomes if outcome is not None]
