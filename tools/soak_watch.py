"""Soak of `enginectl watch`: load, stops and restarts of the bundled engine while memory, fds and helpers are counted.

python tools/soak_watch.py --seconds 1800
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import psutil

from enginectl.cli.demo_process import Demo

PORT = 19178
GROWTH_LIMIT_BYTES = 12 << 20
GROWTH_LIMIT_FDS = 2
SAMPLE_SECONDS = 5.0
TRIGGERS = """
[limits]
fires_per_hour = 1000
disk_mebibytes = 1
[[trigger]]
name = "stopped"
when = { finding = "process-stopped" }
for_seconds = 2
max_per_hour = 1000
[trigger.recording]
after_seconds = 5
[trigger.command]
argv = ["sleep", "600"]
timeout_seconds = 3
[trigger.webhook]
url = "http://127.0.0.1:1/"
[[trigger]]
name = "gone"
when = { state = "gone" }
max_per_hour = 1000
[trigger.recording]
"""


class Sample:
    """What `watch` takes at one moment."""

    def __init__(self, process: psutil.Process) -> None:
        with process.oneshot():
            self.rss = process.memory_info().rss
            self.fds = process.num_fds()
            self.threads = process.num_threads()
            self.cpu = sum(process.cpu_times()[:4])
        children = process.children(recursive=True)
        self.children = len(children)
        self.zombies = 0
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                self.zombies += child.status() == psutil.STATUS_ZOMBIE


def scrape() -> str:
    """The exporter's answer, "" when there is none."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=10) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def round_of(process: psutil.Process, seed: str, seconds: float, samples: list[Sample]) -> None:
    """One life of an engine: load, a stop of 6 s in the middle, and its end."""
    with Demo("", "--concurrency", "2", "--seed", seed) as demo:
        if not demo.wait_for("load"):
            print("the engine did not become ready", file=sys.stderr)
            return
        end = time.monotonic() + seconds
        stop_at, continue_at = end - seconds * 0.6, end - seconds * 0.6 + 6.0
        stopped = False
        while time.monotonic() < end:
            if time.monotonic() >= stop_at and not stopped:
                os.kill(demo.pid, signal.SIGSTOP)
                stopped, stop_at = True, end + 1
            if stopped and time.monotonic() >= continue_at:
                os.kill(demo.pid, signal.SIGCONT)
                stopped = False
            if "enginectl_up" not in scrape():
                print("the exporter did not answer", file=sys.stderr)
            samples.append(Sample(process))
            time.sleep(SAMPLE_SECONDS)
        os.kill(demo.pid, signal.SIGCONT)


def judged(samples: list[Sample], wall_seconds: float) -> bool:
    """Print the account; whether nothing grew. The first third is warm-up."""
    early = samples[len(samples) // 3 : 2 * len(samples) // 3]
    late = samples[2 * len(samples) // 3 :]
    rss = max(s.rss for s in late) - max(s.rss for s in early)
    fds = min(s.fds for s in late) - min(s.fds for s in early)
    threads = min(s.threads for s in late) - min(s.threads for s in early)
    for number, sample in enumerate(samples):
        if number % max(1, len(samples) // 20) == 0:
            print(
                f"  {sample.rss / 1e6:6.1f} MB  {sample.fds} fds  {sample.threads} threads  {sample.children} helpers"
            )
    print(f"growth, last third over middle third: {rss / 1e6:.1f} MB, {fds} fds, {threads} threads")
    print(f"zombies seen: {max(s.zombies for s in samples)}; most helpers at once: {max(s.children for s in samples)}")
    print(f"CPU of watch and its helpers: {100 * samples[-1].cpu / wall_seconds:.2f} % of a core")
    lasting = all(s.zombies for s in late)
    return rss <= GROWTH_LIMIT_BYTES and fds <= GROWTH_LIMIT_FDS and threads <= 1 and not lasting


def main() -> int:
    """0 when nothing grew, no helper was left and the watch ended cleanly."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=1800.0)
    options.add_argument("--life", type=float, default=90.0, help="seconds between two restarts of the engine")
    options.add_argument("--interval", type=float, default=1.0)
    chosen = options.parse_args()
    seed = str(os.getpid())
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "triggers.toml").write_text(TRIGGERS)
        argv = [sys.executable, "-m", "enginectl", "watch", "--name", rf"--seed {seed}\b", "--interval"]
        argv += [str(chosen.interval), "--keep", "60", "--triggers", "triggers.toml", "--listen", f"127.0.0.1:{PORT}"]
        child = subprocess.Popen(argv, cwd=folder, stdout=subprocess.DEVNULL)
        samples: list[Sample] = []
        began = time.monotonic()
        try:
            process = psutil.Process(child.pid)
            while time.monotonic() - began < chosen.seconds and child.poll() is None:
                round_of(process, seed, chosen.life, samples)
            wall = time.monotonic() - began
            left = Sample(process).children
        finally:
            child.send_signal(signal.SIGTERM)
            code = child.wait(timeout=30)
        used = sum(path.stat().st_size for path in Path(folder).glob("*.ecrec"))
        count = len(list(Path(folder).glob("*.ecrec")))
    good = judged(samples, wall) and code == 0 and used <= 1.1 * (1 << 20)
    print(f"{wall:.0f} s, exit {code}, {count} recordings, {used / 1e6:.2f} MB; helpers at the end: {left}")
    print("nothing grew" if good else "SOMETHING GREW")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
