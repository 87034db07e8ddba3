"""A real engine as a test sees it: started, loaded, given a fault, diagnosed, and ended by its own pid."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from enginectl.observe import threads
from enginectl.observe.target import list_processes

T = TypeVar("T")
BOOT_SECONDS = 300.0


def wait_until(predicate: Callable[[], T], deadline: float = 60.0, what: str = "", longest_pause: float = 0.5) -> T:
    """Ask again and again, with growing pauses, until the answer is true."""
    end, pause = time.monotonic() + deadline, min(0.01, longest_pause)
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline:g} s: {what or predicate}")
        time.sleep(pause)
        pause = min(pause * 2, longest_pause)


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Engine:
    """One engine process tree of our own; `with` ends the whole tree by the pids it had."""

    def __init__(self, argv: Sequence[str], environment: dict[str, str], folder: Path, port: int = 0) -> None:
        self.argv, self.port = list(argv), port
        self.environment = environment
        folder.mkdir(parents=True, exist_ok=True)
        self.faults = folder / "faults"
        self.faults.mkdir(exist_ok=True)
        self.log = folder / "engine.log"
        self._shm = set(os.listdir("/dev/shm"))

    def __enter__(self) -> Engine:
        environment = {**os.environ, **self.environment, "ENGINECTL_FAULTS": str(self.faults)}
        self._log_file = self.log.open("wb")
        self.process = subprocess.Popen(
            self.argv, env=environment, stdout=self._log_file, stderr=subprocess.STDOUT, start_new_session=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.disarm()
        self._seen = [p for p in self.tree() if p != self.pid]
        for pid in (self.pid, *self._seen):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        for pid in (self.pid, *self._seen):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        wait_until(lambda: not any(_alive(pid) for pid in self._seen), 20, "the engine's processes end")
        self._log_file.close()
        for name in set(os.listdir("/dev/shm")) - self._shm:
            path = Path("/dev/shm") / name
            if (name.startswith(("psm_", "sem.mp-")) or name.endswith(("cpushm_0", "cpushm_1"))) and not _in_use(path):
                path.unlink(missing_ok=True)

    @property
    def pid(self) -> int:
        return self.process.pid

    def tree(self) -> list[int]:
        """Pids of the whole tree, top first."""
        table = list_processes(lambda title, command: None)
        found, open_ = [], [self.pid]
        while open_:
            pid = open_.pop(0)
            found.append(pid)
            open_ += [seen.pid for seen in table.values() if seen.parent_pid == pid]
        return found

    def member(self, title: str) -> int:
        """The pid of the process with this title."""
        pids = self.tree()
        table = list_processes(lambda title, command: None)
        return next(p for p in pids if p in table and table[p].title == title)

    def answers(self, path: str = "/health") -> bool:
        """Whether the HTTP server answers 200."""
        assert self.process.poll() is None, f"the engine ended:\n{self.tail()}"
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", path)
            return connection.getresponse().status == 200
        except OSError:
            return False

    def ready(self) -> Engine:
        wait_until(self.answers, BOOT_SECONDS, f"/health answers:\n{self.tail()}")
        return self

    def tail(self, lines: int = 25) -> str:
        """The end of the log, and above it the first lines that speak of an error: the cause stands there."""
        log = self.log.read_text(errors="replace").splitlines()
        causes = [line for line in log[:-lines] if "ERROR" in line or "Error" in line]
        return "\n".join([*causes[:30], "[...]", *log[-lines:]])

    def arm(self, fault: str, **options: float) -> None:
        """Switches a fault on: its file appears whole."""
        part = self.faults / f".{fault}"
        part.write_text(json.dumps(options))
        part.rename(self.faults / fault)

    def used(self) -> set[str]:
        """Faults that are in force: their function was called at least once since they were armed."""
        return {path.stem for path in self.faults.glob("*.used")}

    def disarm(self) -> None:
        for path in list(self.faults.iterdir()):
            path.unlink(missing_ok=True)

    def metric(self, name: str) -> float:
        """The sum of one counter over all its series; 0 while it is not there, not a number while nobody answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        except (OSError, http.client.HTTPException):
            return float("nan")
        finally:
            connection.close()
        rows = [line.rpartition(" ") for line in text.splitlines() if line.startswith((name + "{", name + " "))]
        return sum(float(value) for _, _, value in rows)

    def settled(self) -> Engine:
        """Waits until nothing runs or waits, so that the next scenario starts from rest."""
        self.disarm()
        wait_until(
            lambda: self.metric("vllm:num_requests_running") + self.metric("vllm:num_requests_waiting") == 0,
            90,
            "requests of the last scenario end",
        )
        return self


def _alive(pid: int) -> bool:
    stat = threads.process_stat(pid)
    return stat is not None and stat.state != "Z"


def _in_use(path: Path) -> bool:
    """Whether any process maps or opens this file."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if str(path) in (entry / "maps").read_text():
                    return True
    return False


# --- load ---------------------------------------------------------------------------------------------------------


def completion(number: int, *, tokens: int = 1500, stream: bool = False, **more: Any) -> tuple[str, dict[str, Any]]:
    body = {"model": "tiny", "prompt": f"the quick brown fox {number}", "max_tokens": tokens, "ignore_eos": True}
    return "/v1/completions", {**body, "stream": stream, **more}


def embedding(number: int) -> tuple[str, dict[str, Any]]:
    return "/v1/embeddings", {"model": "tiny", "input": f"the lazy dog schedules {number}"}


class Load:
    """Clients that ask again as soon as they are answered; `with` closes their connections."""

    def __init__(self, port: int, clients: int, request: Callable[[int], tuple[str, dict[str, Any]]]) -> None:
        self._port, self._request = port, request
        self._open: dict[int, http.client.HTTPConnection] = {}
        self._ends = threading.Event()
        self.answered = 0
        self._threads = [threading.Thread(target=self._run, args=(i,), daemon=True) for i in range(clients)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        import socket

        self._ends.set()
        for connection in list(self._open.values()):
            if connection.sock:
                with contextlib.suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)

    def _run(self, number: int) -> None:
        while not self._ends.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=600)
            self._open[number] = connection
            path, body = self._request(number)
            try:
                connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
                response = connection.getresponse()
                while response.read1(65536):
                    pass
                self.answered += 1
            except (OSError, http.client.HTTPException):
                self._ends.wait(0.2)
            finally:
                connection.close()


@contextlib.contextmanager
def decoding(engine: Engine, clients: int = 8, **request: Any) -> Iterator[Load]:
    """Long decodes that are under way: the tokens are seen to flow before the body runs."""
    before = engine.metric("vllm:generation_tokens_total")
    with Load(engine.port, clients, lambda n: completion(n, **request)) as load:
        wait_until(lambda: engine.metric("vllm:generation_tokens_total") > before + clients, 120, "tokens flow")
        yield load


# --- the product --------------------------------------------------------------------------------------------------


class Report:
    """The JSON of one `doctor` run."""

    def __init__(self, report: dict[str, Any], status: int) -> None:
        self.json, self.status = report, status
        self.verdict: dict[str, Any] = report["verdict"]
        self.finding: str = self.verdict["finding"]
        self.culprit: dict[str, Any] = self.verdict.get("culprit") or {}

    def __repr__(self) -> str:
        """What a failed assertion shows."""
        rows = [f"{self.verdict['state']}: {self.finding} ({self.verdict['confidence']}) {self.verdict['summary']}"]
        rows += [f"culprit {self.culprit}", f"others {[f['finding'] for f in self.json['findings'][1:]]}"]
        rows += [f"counters {self.json['engine_counters']}"]
        for process in self.json["processes"]:
            rows.append(f"{process['pid']} {process['role']} {process['title']} {process['os_state']}")
            rows += [
                f"   {t['role']:16} {t['wait_point']:32} {t['wait_class']:10} cpu {t['cpu_ratio']} rq {t['runqueue_ratio']}"
                for t in process["threads"]
                if t["role"] not in ("helper", "monitor")
            ]
        return "\n".join(rows)

    def roles(self, process_role: str) -> set[str]:
        return {t["role"] for p in self.json["processes"] if p["role"] == process_role for t in p["threads"]}

    def unknown_places(self) -> list[str]:
        """Threads whose stack was read and nobody knows."""
        return [
            f"{p['title']} {t['name']}: {t['frames'][:4]}"
            for p in self.json["processes"]
            for t in p["threads"]
            if t["wait_point"] == "unknown" and t.get("frames")
        ]

    def chain_pids(self) -> list[int]:
        return [link["pid"] for link in self.json["chain"]]


def doctor(pid: int, *more: str) -> Report:
    """`enginectl doctor --pid PID --json` as a user runs it."""
    argv = [
        sys.executable,
        "-m",
        "enginectl",
        "doctor",
        "--pid",
        str(pid),
        "--json",
        "-q",
        "--fail-on",
        "warning",
        *more,
    ]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=240, cwd=folder)
    assert done.stdout, f"exit {done.returncode}: {done.stderr}"
    report = Report(json.loads(done.stdout), done.returncode)
    print(report)  # shown when the test fails, or with -rP
    return report


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: (stat := threads.process_stat(pid)) is not None and stat.state == "T", 10, "state T")


__all__ = [
    "Engine", "Load", "Report", "completion", "decoding", "doctor", "embedding", "free_port", "stop",
    "wait_until",
]  # fmt: skip
