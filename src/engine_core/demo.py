"""The run-demo program: front end and engine core as children, load on them, faults in them."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine_core.config import EngineConfig, config_from_arguments, config_to_arguments
from engine_core.errors import EngineCoreError, StartupError, UsageError
from engine_core.fault_engine import compile_cache_lock
from engine_core.fault_probe import FaultProbe
from engine_core.faults import FAULTS, Fault
from engine_core.frontend import bind_port
from engine_core.load import LoadGenerator, LoadProfile
from engine_core.registry import MODELS, resolve_model
from engine_core.reporting import Reporter, make_reporter

ACTIVATION_SECONDS = 60.0
_BURNERS = 8
_STOP_SECONDS = 6.0
_SMALL_SHM = 'mount -t tmpfs -o size=16m tmpfs /dev/shm && exec "$0" "$@"'


class Demo:
    """One run: its processes, its load, its faults. Everything it started ends with it."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.faults = self._chosen_faults()
        self.config = self._configure()
        self.profile = self._load_profile()
        self.run_dir = Path(self.config.run_dir or tempfile.mkdtemp(prefix="engine_core-"))
        self.owns_run_dir = not self.config.run_dir
        self.config.run_dir = str(self.run_dir)
        self.helpers: list[subprocess.Popen[bytes]] = []
        self.front_end: asyncio.subprocess.Process | None = None
        self.engine_pid = 0
        self.url = ""
        self.load: LoadGenerator | None = None
        self.watching: asyncio.Task[None] | None = None
        self.stop = asyncio.Event()
        self.reporter: Reporter = make_reporter(arguments.json_events, self.stop.set)

    def _chosen_faults(self) -> list[Fault]:
        chosen = []
        for name in self.arguments.faults:
            if name not in FAULTS:
                raise UsageError(f"unknown fault {name!r}; known: {', '.join(FAULTS)}")
            if reason := FAULTS[name].unsupported_reason():
                raise UsageError(f"fault {name} is not possible here: {reason}")
            chosen.append(FAULTS[name])
        return chosen

    def _configure(self) -> EngineConfig:
        """The user's options; where one was left at its default, the fault's. Errors: UsageError."""
        config, default = config_from_arguments(self.arguments), EngineConfig()
        for fault in self.faults:
            for name, value in {"model": fault.model, **fault.overrides}.items():
                if getattr(config, name) == getattr(default, name):
                    setattr(config, name, value)
        resolve_model(replace(config))
        return config

    def _load_profile(self) -> LoadProfile | None:
        kind = "generate" if self._task() == "generate" else "embed"
        profile: LoadProfile | None = LoadProfile(kind=kind)  # type: ignore[arg-type]
        for fault in self.faults[:1]:
            profile = fault.load
        if self.arguments.no_load or profile is None:
            return None
        if self.arguments.concurrency or self.arguments.rate:
            profile = replace(
                profile, concurrency=self.arguments.concurrency or profile.concurrency, rate=self.arguments.rate
            )
        return profile

    def _task(self) -> str:
        probe = replace(self.config)
        resolve_model(probe)
        return probe.model_spec.task

    async def run(self) -> int:
        """Start everything, run until told to end, clean up; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop.set)
        load_task: asyncio.Task[None] | None = None
        try:
            self._start_helpers_before()
            await self._start_front_end()
            ready = await self._race(self._wait_until_ready())
            if not ready:
                return self._end_of_starting()
            self.reporter.event("ready", frontend_pid=self._front_end_pid(), engine_pid=self.engine_pid, url=self.url)
            if self.profile is not None:
                self.load = LoadGenerator(self.url, self.profile, self._vocab_size())
                load_task = asyncio.ensure_future(self.load.run())
            return await self._serve(load_task)
        finally:
            for task in (load_task, self.watching):
                if task is not None and not task.done():
                    task.cancel()
            await self._clean_up()
            self.reporter.event("stopped")
            self.reporter.close()

    def _end_of_starting(self) -> int:
        """Exit code of a run that ended while starting. Errors: what a fault's activation has raised."""
        if self.watching is not None and self.watching.done() and not self.watching.cancelled():
            self.watching.result()
        return 0

    def _watch_starting_faults(self) -> None:
        """Activate the faults of the starting phase; the run ends when that fails, or after `--duration`."""
        starting = [fault for fault in self.faults if fault.while_starting]
        if not starting or self.watching is not None:
            return
        self.watching = asyncio.ensure_future(self._activate(starting))
        self.watching.add_done_callback(self._stop_when_failed)
        if self.arguments.duration:
            asyncio.get_running_loop().call_later(self.arguments.duration, self.stop.set)

    def _stop_when_failed(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.stop.set()

    def _vocab_size(self) -> int:
        spec = MODELS.get(self.config.model)
        return self.config.hf_overrides.get("vocab_size", spec.vocab_size if spec else 1000)

    def _front_end_pid(self) -> int:
        return self.front_end.pid if self.front_end else 0

    async def _race(self, work: Any) -> bool:
        """Await `work`; False when the run is told to end first."""
        task, stopping = asyncio.ensure_future(work), asyncio.ensure_future(self.stop.wait())
        await asyncio.wait([task, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not task.done():
            task.cancel()
            return False
        task.result()
        return True

    async def _start_front_end(self) -> None:
        arguments = self.arguments
        bind_port(arguments.host, arguments.port).close()
        command = [
            sys.executable,
            "-m",
            "engine_core.frontend",
            "--host",
            arguments.host,
            "--port",
            str(arguments.port),
            "--json-events",
            "--parent-pid",
            str(os.getpid()),
            *(["--remove-run-dir"] if self.owns_run_dir else []),
            *config_to_arguments(self.config),
        ]
        if any(fault.driver == "small-shm" for fault in self.faults):
            command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _SMALL_SHM, *command]
        self.front_end = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )

    async def _wait_until_ready(self) -> None:
        """Follow the front end's events. Errors: StartupError when it ends first."""
        assert self.front_end is not None and self.front_end.stdout is not None
        while line := await self.front_end.stdout.readline():
            event = json.loads(line)
            self.engine_pid = event["engine_pid"]
            if event["event"] == "ready":
                self.url = event["url"]
                return
            self.reporter.event("starting", frontend_pid=self._front_end_pid(), engine_pid=self.engine_pid)
            self._watch_starting_faults()
        raise self._front_end_error(await self.front_end.wait())

    def _front_end_error(self, code: int) -> EngineCoreError:
        kind = UsageError if code == 2 else StartupError
        return kind("the front end ended before it was ready (its reason is above)")

    async def _serve(self, load_task: asyncio.Task[None] | None) -> int:
        """Report once a second until the end of the run or of the front end."""
        assert self.front_end is not None
        after_ready = [fault for fault in self.faults if not fault.while_starting]
        activating = asyncio.ensure_future(self._activate(after_ready))
        ended, stopping = asyncio.ensure_future(self.front_end.wait()), asyncio.ensure_future(self.stop.wait())
        until = time.monotonic() + self.arguments.duration if self.arguments.duration else None
        try:
            while not self.stop.is_set() and (until is None or time.monotonic() < until):
                left = 1.0 if until is None else max(0.0, min(1.0, until - time.monotonic()))
                await asyncio.wait([ended, stopping], timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if ended.done():
                    print(f"engine_core: the front end has ended (exit status {ended.result()})", file=sys.stderr)
                    return 1
                for task in (activating, load_task):
                    if task is not None and task.done():
                        task.result()
                if self.load is not None:
                    self.reporter.load(self.load.stats())
            return 0
        finally:
            for waiting in (activating, ended, stopping):
                waiting.cancel()

    async def _activate(self, faults: list[Fault]) -> None:
        """Bring the driver's part about, and announce each fault once it is seen to hold.

        Errors: StartupError when that takes longer than a minute.
        """
        for fault in faults:
            await self._act(fault)
            probe = FaultProbe(fault.name, self.engine_pid, str(self.run_dir), self.url, self.load)
            deadline = time.monotonic() + ACTIVATION_SECONDS
            while not await probe.holds(fault.verified_by):
                if time.monotonic() > deadline:
                    raise StartupError(f"fault {fault.name} did not become active within {ACTIVATION_SECONDS:.0f} s")
            self.reporter.event("fault-active", fault=fault.name)

    async def _act(self, fault: Fault) -> None:
        if fault.driver in ("stop-engine", "burn-cores", "small-shm"):
            while self.load is None or self.load.finished < 5:
                await asyncio.sleep(0.05)
        if fault.driver == "stop-engine":
            os.kill(self.engine_pid, signal.SIGSTOP)
        elif fault.driver == "small-shm":
            self._start_helper("fill", f"/proc/{self.engine_pid}/root/dev/shm/leaked-segment")
        elif fault.driver == "burn-cores":
            core = min(os.sched_getaffinity(0))
            for task in Path(f"/proc/{self.engine_pid}/task").iterdir():
                os.sched_setaffinity(int(task.name), {core})
            for _ in range(_BURNERS):
                self._start_helper("burn", str(core))

    def _start_helpers_before(self) -> None:
        for fault in self.faults:
            if fault.driver == "hold-lock":
                marker = self.run_dir / "lock.held"
                self._start_helper("hold-lock", compile_cache_lock(str(self.run_dir)), str(marker))
            elif fault.driver == "feed-weights":
                pipe = self.run_dir / "weights.safetensors"
                os.mkfifo(pipe)
                self.config.weights_stream = str(pipe)
                marker = self.run_dir / f"{fault.name}.active"
                self._start_helper("feed-weights", str(pipe), _weights_header(self.config), str(marker))

    def _start_helper(self, *command: str) -> None:
        self.helpers.append(
            subprocess.Popen(
                [sys.executable, "-m", "engine_core.fault_helpers", command[0], str(os.getpid()), *command[1:]],
                stdin=subprocess.DEVNULL,
            )
        )

    async def _clean_up(self) -> None:
        """End every child, even stopped or hung ones, and remove every file."""
        if self.front_end is not None and self.front_end.returncode is None:
            self.front_end.terminate()
            try:
                await asyncio.wait_for(self.front_end.wait(), _STOP_SECONDS)
            except TimeoutError:
                self.front_end.kill()
                await self.front_end.wait()
        for helper in self.helpers:
            helper.kill()
            helper.wait()
        if self.owns_run_dir:
            shutil.rmtree(self.run_dir, ignore_errors=True)


def _weights_header(config: EngineConfig) -> str:
    """Header of a safetensors file for one of the tiny models."""
    spec = MODELS[config.model]
    query, shared = spec.num_attention_heads * spec.head_dim, spec.num_key_value_heads * spec.head_dim
    hidden, inner = spec.hidden_size, spec.intermediate_size
    shapes: dict[str, list[int]] = {"embed_tokens.weight": [spec.vocab_size, hidden], "norm.weight": [hidden]}
    for layer in range(spec.num_hidden_layers):
        sizes = {
            "self_attn.q_proj": [query, hidden],
            "self_attn.k_proj": [shared, hidden],
            "self_attn.v_proj": [shared, hidden],
            "self_attn.o_proj": [hidden, query],
            "self_attn.q_norm": [spec.head_dim],
            "self_attn.k_norm": [spec.head_dim],
            "mlp.gate_proj": [inner, hidden],
            "mlp.up_proj": [inner, hidden],
            "mlp.down_proj": [hidden, inner],
            "input_layernorm": [hidden],
            "post_attention_layernorm": [hidden],
        }
        shapes |= {f"layers.{layer}.{name}.weight": shape for name, shape in sizes.items()}
    header, end = {}, 0
    for name, shape in shapes.items():
        start, end = end, end + 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}
    return json.dumps(header)


def run_demo(arguments: argparse.Namespace) -> int:
    """Run the demo. Errors: UsageError and StartupError, each with its exit code."""
    return asyncio.run(_run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    return await Demo(arguments).run()
