"""Executors: the model runner called in place, or on a thread of its own (`--worker-use-thread`)."""

from __future__ import annotations

import threading

from engine_core.model import ModelRunner, ModelRunnerOutput
from engine_core.process import start_named_thread
from engine_core.scheduler import SchedulerOutput


class InlineExecutor:
    """Runs the model on the caller's thread."""

    def __init__(self, runner: ModelRunner) -> None:
        self.runner = runner

    def execute_model(self, scheduler_output: SchedulerOutput) -> ModelRunnerOutput:
        """Run one step."""
        return self.runner.execute_model(scheduler_output)


class ThreadExecutor(InlineExecutor):
    """Hands each step to the thread `Worker` and waits for its result on `step_cv`."""

    def __init__(self, runner: ModelRunner) -> None:
        super().__init__(runner)
        self.step_cv = threading.Condition()
        self.step: SchedulerOutput | None = None
        self.result: ModelRunnerOutput | BaseException | None = None
        start_named_thread("Worker", self.worker_busy_loop)

    def execute_model(self, scheduler_output: SchedulerOutput) -> ModelRunnerOutput:
        """Run one step on the worker; raises what the worker raised."""
        with self.step_cv:
            self.step, self.result = scheduler_output, None
            self.step_cv.notify_all()
        result = self.wait_for_worker()
        if isinstance(result, BaseException):
            raise result
        return result

    def wait_for_worker(self) -> ModelRunnerOutput | BaseException:
        """Block until the worker has published a result."""
        with self.step_cv:
            while self.result is None:
                self.step_cv.wait()
            return self.result

    def worker_busy_loop(self) -> None:
        """Run steps for ever."""
        while True:
            step = self.wait_for_step()
            try:
                result: ModelRunnerOutput | BaseException = self.runner.execute_model(step)
            except Exception as error:
                result = error
            with self.step_cv:
                self.result = result
                self.step_cv.notify_all()

    def wait_for_step(self) -> SchedulerOutput:
        """Block until the engine loop has posted a step."""
        with self.step_cv:
            while self.step is None:
                self.step_cv.wait()
            step, self.step = self.step, None
            return step
