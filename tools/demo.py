"""`make demo`: the bundled engine under load, a diagnosis of it, then one fault and its diagnosis."""

from __future__ import annotations

import subprocess
import sys

from enginectl.cli.demo_process import Demo

FAULT = "client-stops-reading"


def _say(text: str) -> None:
    print(f"\n\033[1m== {text}\033[0m" if sys.stdout.isatty() else f"\n== {text}", flush=True)


def _doctor(pid: int) -> int:
    _say(f"enginectl doctor --pid {pid}")
    return subprocess.run([sys.executable, "-m", "enginectl", "doctor", "--pid", str(pid)], check=False).returncode


def main() -> int:
    """0 when the healthy engine was found healthy and the fault was found."""
    _say("starting the bundled engine (tiny model, random weights, CPU) and driving load")
    with Demo("", "--model", "qwen3-embedding-tiny", "--concurrency", "8") as demo:
        if not demo.wait_for("load"):
            print("the engine did not become ready", file=sys.stderr)
            return 1
        healthy = _doctor(demo.pid)
    _say(f"the same engine with a fault: {FAULT}")
    with Demo(FAULT) as demo:
        if not demo.wait_for("fault-active"):
            print("the fault did not take hold", file=sys.stderr)
            return 1
        faulty = _doctor(demo.pid)
    _say("done; nothing is left running")
    print("More faults: enginectl run-demo --list-faults. All of them against their findings: make selftest")
    return 0 if (healthy, faulty) == (0, 10) else 1


if __name__ == "__main__":
    sys.exit(main())
