"""Targets of every Python version that is installed here: stacks, names and roles are read from each."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from enginectl.classify.match import last_name
from enginectl.observe import stacks, target

pytestmark = pytest.mark.live
VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
PROGRAM = """
import queue, threading
class Loop:
    def run_busy_loop(self):
        ready.set()
        queue.Queue().get()
ready = threading.Event()
threading.Thread(target=Loop().run_busy_loop, name="EngineCoreLoop", daemon=True).start()
ready.wait()
print("ready", flush=True)
threading.Event().wait()
"""


def interpreter(version: str) -> str | None:
    """An interpreter of this version: on PATH, or below pyenv's folder."""
    found = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    return str(found[-1]) if found else shutil.which(f"python{version}")


@pytest.fixture(params=VERSIONS)
def child(request: pytest.FixtureRequest) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    python = interpreter(request.param)
    if python is None:
        pytest.skip(f"Python {request.param} is not installed here")
    process = subprocess.Popen([python, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    if process.stdout.readline() != b"ready\n":
        error = process.stderr.read().decode()
        process.wait()
        pytest.skip(f"{python} does not run here: {error.strip()[-80:]}")
    yield request.param, process
    process.kill()
    process.communicate()


def test_stacks_of_this_version(child: tuple[str, subprocess.Popen[bytes]]) -> None:
    version, process = child
    (dump,) = stacks.dump([process.pid])
    assert dump.threads is not None, dump.gap
    loop = next(t for t in dump.threads if t.name == "EngineCoreLoop")
    assert loop.frames is not None
    names = [last_name(f.function) for f in loop.frames]
    assert names.index("wait") < names.index("get") < names.index("run_busy_loop")
    assert target.python_version(process.pid) == version
