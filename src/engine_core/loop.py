"""EngineCoreLoop: takes requests and aborts, schedules, runs the model, hands the results on."""

from __future__ import annotations

import logging
import queue
import time
from dataclasses import dataclass, field

from engine_core.config import EngineConfig
from engine_core.messages import AbortRequests, SchedulerStats
from engine_core.model import ModelRunnerOutput
from engine_core.scheduler import Request, RequestStep, Scheduler, SchedulerOutput
from engine_core.worker import InlineExecutor

logger = logging.getLogger("engine_core")
EMPTY_STEP_SECONDS = 0.001


@dataclass(slots=True)
class StepOutputs:
    """What OutputProcessor gets of one step; tensors are in `model` by request id."""

    steps: list[RequestStep]
    model: ModelRunnerOutput
    stats: SchedulerStats
    aborted: list[Request] = field(default_factory=list)


class EngineCoreLoop:
    """The engine's heart beat, on the thread of the same name."""

    def __init__(
        self,
        config: EngineConfig,
        scheduler: Scheduler,
        executor: InlineExecutor,
        input_queue: queue.Queue[Request | AbortRequests | None],
        output_queue: queue.Queue[StepOutputs | None],
    ) -> None:
        self.config, self.scheduler, self.executor = config, scheduler, executor
        self.input_queue, self.output_queue = input_queue, output_queue
        self.num_steps = 0
        self.last_gauges = (0, 0)
        self.stopping = False

    def run_busy_loop(self) -> None:
        """Serve until told to stop."""
        while not self.stopping:
            self._process_input_queue()
            if self.scheduler.has_requests():
                self._process_engine_step()

    def _process_input_queue(self) -> None:
        """Take everything that has arrived; when there is nothing to run, wait for it."""
        while not self.scheduler.has_requests() and not self.stopping:
            self._handle_client_request(self.input_queue.get())
        while not self.stopping:
            try:
                message = self.input_queue.get_nowait()
            except queue.Empty:
                return
            self._handle_client_request(message)

    def _handle_client_request(self, message: Request | AbortRequests | None) -> None:
        if isinstance(message, Request):
            self.scheduler.add_request(message)
        elif message is not None:
            self._handle_aborts(message)

    def _handle_aborts(self, message: AbortRequests) -> None:
        """Drop the requests and let OutputProcessor forget them."""
        aborted = self.scheduler.abort_requests(list(message.request_ids))
        for request in aborted:
            self.executor.runner.forget(request.request_id)
        if aborted:
            self._put_outputs(StepOutputs([], ModelRunnerOutput(), self._make_stats(SchedulerOutput()), aborted))

    def _process_engine_step(self) -> None:
        """One step; after an empty one yield the GIL for a moment, so that other threads can go on."""
        if not self.step():
            self._yield_empty_step()

    def _yield_empty_step(self) -> None:
        time.sleep(EMPTY_STEP_SECONDS)

    def step(self) -> bool:
        """Schedule, execute, update. False when nothing could be scheduled."""
        scheduler_output = self.scheduler.schedule()
        if not scheduler_output.scheduled:
            self._publish_changed_gauges(scheduler_output)
            return False
        model_output = self.executor.execute_model(scheduler_output)
        steps = self.scheduler.update_from_output(scheduler_output, model_output.sampled_token_ids)
        self.num_steps += 1
        for request_step in steps:
            if request_step.finish_reason is not None:
                self.executor.runner.forget(request_step.request.request_id)
        stats = self._make_stats(scheduler_output)
        if self.config.log_steps:
            logger.info(
                "step %d: %d tokens, %d running, %d waiting, KV usage %.3f, requests %s",
                self.num_steps,
                stats.num_scheduled_tokens,
                stats.num_running,
                stats.num_waiting,
                stats.kv_cache_usage,
                [item.request.request_id for item in scheduler_output.scheduled],
            )
        self._put_outputs(StepOutputs(steps, model_output, stats))
        return True

    def _publish_changed_gauges(self, scheduler_output: SchedulerOutput) -> None:
        """Let an empty step be seen in the gauges, once per change."""
        stats = self._make_stats(scheduler_output)
        if (stats.num_running, stats.num_waiting) != self.last_gauges or stats.num_preempted:
            self._put_outputs(StepOutputs([], ModelRunnerOutput(), stats))

    def _make_stats(self, scheduler_output: SchedulerOutput) -> SchedulerStats:
        scheduler = self.scheduler
        return SchedulerStats(
            num_running=len(scheduler.running),
            num_waiting=len(scheduler.waiting),
            kv_cache_usage=scheduler.kv_cache.usage,
            num_preempted=scheduler_output.num_preempted,
            num_scheduled_tokens=scheduler_output.total_num_scheduled_tokens,
            prefix_cache_queries=scheduler.kv_cache.num_queries,
            prefix_cache_hits=scheduler.kv_cache.num_hits,
        )

    def _put_outputs(self, outputs: StepOutputs) -> None:
        """Hand a step on; blocks while a bounded queue is full."""
        self.last_gauges = (outputs.stats.num_running, outputs.stats.num_waiting)
        self.output_queue.put(outputs)

    def stop(self) -> None:
        """Make `run_busy_loop` return after what it is doing."""
        self.stopping = True
        self.input_queue.put(None)
