"""The conditions that show a fault to be real, seen from outside the engine: /proc, /metrics, the clients."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from engine_core.load import LoadGenerator
from engine_core.process import ThreadClock, read_threads

WINDOW_SECONDS = 1.2
ENGINE_THREADS = ("IPCLoop", "EngineCoreLoop", "OutputProcessor")


class FaultProbe:
    """Looks at one engine; every condition takes about `WINDOW_SECONDS` and answers yes or no."""

    def __init__(self, fault: str, engine_pid: int, run_dir: str, url: str, load: LoadGenerator | None) -> None:
        self.fault, self.engine_pid, self.run_dir, self.url, self.load = fault, engine_pid, run_dir, url, load
        self.before: dict[str, ThreadClock] = {}
        self.after: dict[str, ThreadClock] = {}
        self.seconds = 1.0
        self.finished_before = 0

    async def holds(self, condition: str) -> bool:
        """Whether the named condition holds now."""
        started = time.monotonic()
        self.before = read_threads(self.engine_pid)
        self.finished_before = self.load.finished if self.load else 0
        answer: bool = await getattr(self, condition)()
        await asyncio.sleep(max(0.0, 0.1 - (time.monotonic() - started)))
        return answer

    async def _look_again(self) -> None:
        started = time.monotonic()
        await asyncio.sleep(WINDOW_SECONDS)
        self.after = read_threads(self.engine_pid)
        self.seconds = time.monotonic() - started

    def _cpu_share(self, name: str) -> float:
        if name not in self.before or name not in self.after:
            return 0.0
        return (self.after[name].cpu_seconds - self.before[name].cpu_seconds) / self.seconds

    def _demand(self, name: str) -> float:
        """Share of the time a thread ran or wanted a core; on a busy machine it gets less than it wants."""
        if name not in self.before or name not in self.after:
            return 0.0
        waited = self.after[name].runqueue_seconds - self.before[name].runqueue_seconds
        return self._cpu_share(name) + waited / self.seconds

    def _parked(self, *names: str) -> bool:
        """Whether these threads live and have not run at all."""
        return all(
            name in self.before
            and name in self.after
            and self.before[name].switches == self.after[name].switches
            and self.after[name].cpu_seconds - self.before[name].cpu_seconds < 0.001
            for name in names
        )

    def _stuck(self) -> bool:
        """Whether clients wait and none was served during the look."""
        return self.load is not None and self.load.in_flight > 0 and self.load.finished == self.finished_before

    async def _metrics(self) -> dict[str, float]:
        timeout = aiohttp.ClientTimeout(total=10)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(self.url + "/metrics") as response:
            families = text_string_to_metric_families(await response.text())
        return {
            sample.name + sample.labels.get("finished_reason", ""): sample.value
            for family in families
            for sample in family.samples
        }

    def _marked(self) -> bool:
        return Path(self.run_dir, f"{self.fault}.active").exists()

    async def all_idle(self) -> bool:
        await self._look_again()
        return self._parked(*ENGINE_THREADS)

    async def requests_finish(self) -> bool:
        return self.load is not None and self.load.finished >= 5

    async def marked(self) -> bool:
        return self._marked()

    async def marked_and_ipc_parked(self) -> bool:
        await self._look_again()
        return self._marked() and self._parked("IPCLoop") and self._stuck()

    async def marked_and_loop_parked(self) -> bool:
        await self._look_again()
        return self._marked() and self._parked("EngineCoreLoop") and self._stuck()

    async def loop_parked_with_requests(self) -> bool:
        await self._look_again()
        return self._parked("EngineCoreLoop") and self._stuck()

    async def loop_and_output_parked(self) -> bool:
        await self._look_again()
        return self._parked("EngineCoreLoop", "OutputProcessor") and self._stuck()

    async def all_parked_with_requests(self) -> bool:
        await self._look_again()
        return self._parked(*ENGINE_THREADS) and self._stuck()

    async def output_processor_dominates(self) -> bool:
        await self._look_again()
        enough = self._cpu_share("OutputProcessor") >= 1.2 * self._cpu_share("EngineCoreLoop")
        return self._demand("OutputProcessor") >= 0.6 and enough

    async def ipc_loop_dominates(self) -> bool:
        await self._look_again()
        return self._demand("IPCLoop") >= 0.7 and self._cpu_share("IPCLoop") >= 2 * self._cpu_share("EngineCoreLoop")

    async def aborts_flood(self) -> bool:
        before = (await self._metrics()).get("vllm:request_success_totalabort", 0.0)
        await self._look_again()
        after = (await self._metrics()).get("vllm:request_success_totalabort", 0.0)
        return (after - before) / self.seconds >= 100

    async def preemptions_rise(self) -> bool:
        before = await self._metrics()
        await self._look_again()
        after = await self._metrics()
        rate = (after["vllm:num_preemptions_total"] - before["vllm:num_preemptions_total"]) / self.seconds
        return rate >= 1 and after["vllm:kv_cache_usage_perc"] >= 0.8

    async def steps_without_work(self) -> bool:
        before = await self._metrics()
        await self._look_again()
        after = await self._metrics()
        steps = "vllm:iteration_tokens_total_count"
        loop = [clocks.get("EngineCoreLoop") for clocks in (self.before, self.after)]
        return (
            self._stuck()
            and after[steps] == before[steps]
            and after["vllm:num_requests_waiting"] >= 1
            and loop[0] is not None
            and loop[1] is not None
            and loop[1].switches - loop[0].switches > 50
        )

    async def loop_gone(self) -> bool:
        await self._look_again()
        return bool(self.after) and "EngineCoreLoop" not in self.after and self._stuck()

    async def stray_thread_hot(self) -> bool:
        await self._look_again()
        return self._demand("StatsFlusher") >= 0.4

    async def loop_starved(self) -> bool:
        await self._look_again()
        share = self._cpu_share("EngineCoreLoop")
        return share <= 0.25 and self._demand("EngineCoreLoop") - share >= 0.5

    async def shm_full_and_stuck(self) -> bool:
        await self._look_again()
        room = os.statvfs(f"/proc/{self.engine_pid}/root/dev/shm")
        return room.f_bavail * room.f_frsize < 1 << 20 and self._stuck()

    async def process_stopped(self) -> bool:
        return self.before.get("MainThread") is not None and self.before["MainThread"].state == "T"

    async def marked_and_stuck(self) -> bool:
        await self._look_again()
        return self._marked() and self._stuck()
