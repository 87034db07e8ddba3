"""GPUs through NVML (`pynvml` of nvidia-ml-py): the single door to it.

NVML calls can hang with the driver. Each read runs in a thread of its own with one deadline; after a hang the
reader is closed, the GPU that did not answer is reported as such, and nothing is asked again.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from enginectl.model.observed import Gap, GpuSample
from enginectl.observe.fds import pid_numbers
from enginectl.observe.kernel_log import KernelLog, Xid

OPEN_SECONDS = 5.0
READ_SECONDS = 2.0

_NO_PERMISSION, _UNKNOWN = 4, 999
_FAULTS = {15: "lost", 16: "reset-required"}
_UNCORRECTED, _VOLATILE, _SM_CLOCK = 1, 0, 1
_THROTTLE_BITS = (
    (0x1, "gpu_idle"),
    (0x2, "applications_clocks_setting"),
    (0x4, "sw_power_cap"),
    (0x8, "hw_slowdown"),
    (0x10, "sync_boost"),
    (0x20, "sw_thermal_slowdown"),
    (0x40, "hw_thermal_slowdown"),
    (0x80, "hw_power_brake_slowdown"),
    (0x100, "display_clock_setting"),
)
_GPM_SM, _GPM_TENSOR, _GPM_DRAM = 2, 5, 10
_OPENING = {
    4: ("the driver refuses this user", "run enginectl with access to /dev/nvidiactl, or as root"),
    9: ("the NVIDIA driver is not loaded", "nvidia-smi on the host tells why"),
    12: ("there is no NVML library (libnvidia-ml.so.1) here", ""),
    18: (
        "driver and NVML library are of different versions",
        "reboot the host, or restart the container after the driver",
    ),
}
_IN_CONTAINER = "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ..."
_AMD = "AMD GPUs are not read; give what rocm-smi shows in a facts file (--facts)"


class _FaultyGpu(Exception):
    """The driver gave up on this GPU."""


def open_gpus(*, timeout_seconds: float = OPEN_SECONDS) -> tuple[GpuReader | None, tuple[Gap, ...]]:
    """Start NVML.

    Shape: a reader, or None with the Gap that says why. Errors: none.
    Source: libnvidia-ml.so.1 through `pynvml`.
    """
    try:
        import pynvml
    except ImportError:
        return None, (_gap("the Python bindings of NVML are not installed", "pip install nvidia-ml-py"),)
    opened: list[Any] = []

    def work() -> None:
        try:
            pynvml.nvmlInit()
            opened.append(int(pynvml.nvmlDeviceGetCount()))
        except Exception as error:
            opened.append(error)

    if not _run(work, "nvml-open", timeout_seconds):
        return None, (_gap(f"the driver did not answer in {timeout_seconds:g} s", "dmesg | grep -i nvrm"),)
    if isinstance(opened[0], Exception):
        return None, (_opening_gap(opened[0]),)
    if opened[0] == 0:
        return None, (_gap("the driver shows no GPU here", _IN_CONTAINER),)
    return GpuReader(pynvml, opened[0]), ()


def _opening_gap(error: Exception) -> Gap:
    code = getattr(error, "value", None)
    reason, remedy = _OPENING.get(code if isinstance(code, int) else -1, (f"NVML: {error}", "nvidia-smi on the host"))
    if code == 12:
        amd = os.path.exists("/dev/kfd")
        remedy = (
            _AMD if amd else _IN_CONTAINER if os.path.exists("/dev/nvidiactl") else "on a machine without GPU: --no-gpu"
        )
    return _gap(reason, remedy)


def _run(work: Callable[[], None], name: str, seconds: float) -> bool:
    """Do `work` in a thread of its own; False when it has not ended in time (or no thread can be made)."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return False
    thread.join(seconds)
    return not thread.is_alive()


def _gap(reason: str, remedy: str) -> Gap:
    return Gap(source="gpu", reason=reason, remedy=remedy)


class GpuReader:
    """All GPUs that NVML shows. Not for use from several threads at once."""

    def __init__(self, nvml: Any, count: int) -> None:
        self._nvml = nvml
        self._devices = [_Device(nvml, index) for index in range(count)]
        self._log = KernelLog()
        self._hung = ""

    def read(
        self, pids: Sequence[int] = (), *, timeout_seconds: float = READ_SECONDS
    ) -> tuple[tuple[GpuSample, ...], tuple[Gap, ...]]:
        """One sample of every GPU.

        Shape: samples by index; a value that the GPU does not support is None. SM, tensor and DRAM ratios come
        from the second read on (they are means between two reads). `pids` are the engine's. Errors: none; Gaps for
        a GPU that is lost or does not answer. Units: in the field names. Source: NVML, GPM, `/dev/kmsg`.
        """
        if self._hung:
            return (), (
                _gap(f"{self._hung} did not answer before; not asked again", "nvidia-smi -q; dmesg | grep Xid"),
            )
        outer, inner = _pid_numbers(pids)
        xids = _since(self._log.xids(), pids)
        samples: list[GpuSample] = []

        def work() -> None:
            for device in self._devices:
                samples.append(device.sample(outer, inner, xids))

        ended = _run(work, "nvml-read", timeout_seconds)
        done = list(samples)
        gaps: list[Gap] = []
        if not ended:
            stuck = self._devices[len(done)] if len(done) < len(self._devices) else self._devices[-1]
            self._hung = f"GPU {stuck.index} ({stuck.doing})"
            done.append(GpuSample(index=stuck.index, name=stuck.name, fault="unresponsive"))
            gaps.append(
                _gap(f"{self._hung} did not answer in {timeout_seconds:g} s", "nvidia-smi -q; dmesg | grep Xid")
            )
        return tuple(done), (*gaps, *self._gaps(done))

    def _gaps(self, samples: Iterable[GpuSample]) -> list[Gap]:
        gaps: list[Gap] = []
        for each in samples:
            if each.fault in ("lost", "reset-required"):
                word = "has fallen off the bus" if each.fault == "lost" else "needs a reset"
                gaps.append(_gap(f"GPU {each.index} {word}", "reset it or reboot the host, after dmesg | grep Xid"))
        if any(device.refused for device in self._devices):
            gaps.append(_gap("the driver refuses some values to this user", "run enginectl as root"))
        known = [key for each in samples for key in each.process_memory_bytes]
        if known and all(key == "other" for key in known) and os.getpid() != 1:
            reason = "the driver's process ids match none of the engine's: GPU memory is not assigned to processes"
            gaps.append(_gap(reason, "run enginectl on the host, or with --pid=host"))
        return gaps

    def close(self) -> None:
        """Let go of NVML; does nothing when it hangs."""
        self._log.close()
        if not self._hung:
            _run(self._shutdown, "nvml-close", 1.0)

    def _shutdown(self) -> None:
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:
            return


class _Device:
    """One GPU. `doing` names the call in progress, for a hang; `refused` that some value was denied."""

    def __init__(self, nvml: Any, index: int) -> None:
        self._nvml = nvml
        self._handle: Any = None
        self._place: tuple[int, int, int] | None = None
        self._gpm: bool | None = None
        self._before: Any = None
        self.index = index
        self.name: str | None = None
        self.doing = ""
        self.refused = False

    def _ask(self, call: str, *arguments: Any) -> Any:
        """One NVML call; None when it is not supported, denied or unknown to this driver."""
        self.doing = call
        function: Callable[..., Any] | None = getattr(self._nvml, call, None)
        if function is None:
            return None
        try:
            return function(*arguments)
        except self._nvml.NVMLError as error:
            code = int(getattr(error, "value", 0))
            if code in _FAULTS:
                raise _FaultyGpu(_FAULTS[code]) from None
            if code == _UNKNOWN and call == "nvmlDeviceGetHandleByIndex":
                raise _FaultyGpu("lost") from None
            self.refused = self.refused or code == _NO_PERMISSION
            return None
        except Exception:  # the bindings' own complaints about an older driver
            return None

    def sample(self, outer: Mapping[int, int], inner: Mapping[int, int], xids: Sequence[Xid]) -> GpuSample:
        """Everything at once; a GPU that is lost gives its index and the fault."""
        try:
            if self._handle is None:
                self._open()
            if self._handle is None:
                return GpuSample(index=self.index)
            return self._sample(outer, inner, xids)
        except _FaultyGpu as fault:
            return GpuSample(index=self.index, name=self.name, xid=self._xid(xids), fault=str(fault))

    def _open(self) -> None:
        self._handle = self._ask("nvmlDeviceGetHandleByIndex", self.index)
        if self._handle is None:
            return
        name = self._ask("nvmlDeviceGetName", self._handle)
        self.name = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
        pci = self._ask("nvmlDeviceGetPciInfo", self._handle)
        if pci is not None:
            self._place = (int(pci.domain), int(pci.bus), int(pci.device))
        support = self._ask("nvmlGpmQueryDeviceSupport", self._handle)
        self._gpm = bool(support is not None and support.isSupportedDevice)

    def _sample(self, outer: Mapping[int, int], inner: Mapping[int, int], xids: Sequence[Xid]) -> GpuSample:
        ask, handle = self._ask, self._handle
        load = ask("nvmlDeviceGetUtilizationRates", handle)
        memory = ask("nvmlDeviceGetMemoryInfo", handle)
        power = ask("nvmlDeviceGetPowerUsage", handle)
        limit = ask("nvmlDeviceGetEnforcedPowerLimit", handle)
        clock = ask("nvmlDeviceGetClockInfo", handle, _SM_CLOCK)
        reasons = ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if reasons is None:
            reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        mig = ask("nvmlDeviceGetMigMode", handle)
        gpm = self._activity()
        return GpuSample(
            index=self.index,
            name=self.name,
            utilization_percent=None if load is None else float(load.gpu),
            memory_activity_percent=None if load is None else float(load.memory),
            memory_used_bytes=None if memory is None else int(memory.used),
            memory_total_bytes=None if memory is None else int(memory.total),
            power_watts=None if power is None else power / 1000,
            power_limit_watts=None if limit is None else limit / 1000,
            sm_clock_mhz=None if clock is None else float(clock),
            throttle_reasons=tuple(name for bit, name in _THROTTLE_BITS if (reasons or 0) & bit),
            sm_activity_ratio=gpm.get(_GPM_SM),
            tensor_activity_ratio=gpm.get(_GPM_TENSOR),
            dram_bandwidth_ratio=gpm.get(_GPM_DRAM),
            ecc_errors_uncorrected=ask("nvmlDeviceGetTotalEccErrors", handle, _UNCORRECTED, _VOLATILE),
            retired_pages=self._retired(),
            xid=self._xid(xids),
            mig=None if mig is None else mig[0] == 1,
            process_memory_bytes=self._processes(outer, inner),
        )

    def _activity(self) -> dict[int, float]:
        """Means between the last read and this one, by GPM metric; empty on the first read and before Hopper."""
        if not self._gpm:
            return {}
        now = self._ask("nvmlGpmSampleAlloc")
        if now is None or self._ask("nvmlGpmSampleGet", self._handle, now) is None:
            self._gpm = False
            return {}
        before, self._before = self._before, now
        if before is None:
            return {}
        query = self._nvml.c_nvmlGpmMetricsGet_t()
        query.version, query.numMetrics = self._nvml.NVML_GPM_METRICS_GET_VERSION, 3
        query.sample1, query.sample2 = before, now
        for at, metric in enumerate((_GPM_SM, _GPM_TENSOR, _GPM_DRAM)):
            query.metrics[at].metricId = metric
        done = self._ask("nvmlGpmMetricsGet", query)
        self._ask("nvmlGpmSampleFree", before)
        if done is None:
            return {}
        return {row.metricId: row.value / 100 for row in query.metrics[:3] if row.nvmlReturn == 0 and row.value >= 0}

    def _retired(self) -> int | None:
        """Memory given up for uncorrectable errors: remapped rows, on older GPUs retired pages."""
        rows = self._ask("nvmlDeviceGetRemappedRows", self._handle)
        if rows is not None:
            return int(rows[1])
        counts = [self._ask("nvmlDeviceGetRetiredPages", self._handle, cause) for cause in (0, 1)]
        return None if counts == [None, None] else sum(len(each or ()) for each in counts)

    def _processes(self, outer: Mapping[int, int], inner: Mapping[int, int]) -> dict[str, int]:
        """Bytes by pid of the engine, everybody else's under `other`."""
        found: dict[str, int] = {}
        rows = self._ask("nvmlDeviceGetComputeRunningProcesses_v3", self._handle)
        if rows is None:
            rows = self._ask("nvmlDeviceGetComputeRunningProcesses_v2", self._handle)
        for row in rows or ():
            pid = outer.get(row.pid)
            if pid is None and not os.path.exists(f"/proc/{row.pid}"):
                pid = inner.get(row.pid)
            key = "other" if pid is None else str(pid)
            found[key] = found.get(key, 0) + int(row.usedGpuMemory or 0)
        return found

    def _xid(self, xids: Sequence[Xid]) -> int | None:
        mine = [each.number for each in xids if each.place == self._place]
        return mine[-1] if mine else None


def _pid_numbers(pids: Sequence[int]) -> tuple[dict[int, int], dict[int, int]]:
    """Numbers under which the driver may know the pids: as seen here, and as seen inside their own namespaces."""
    outer = {pid: pid for pid in pids}
    inner: dict[int, int] = {}
    for pid in pids:
        for number in pid_numbers(pid)[1:]:
            inner.setdefault(number, pid)
    return outer, inner


def _since(xids: tuple[Xid, ...], pids: Sequence[int]) -> tuple[Xid, ...]:
    """Errors since the oldest of `pids` started (with 1 s of slack); all of the last hour when none is given."""
    began: list[float] = []
    for pid in pids if xids else ():
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                began.append(int(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK"))
        except (OSError, IndexError, ValueError):
            continue
    least = min(began) if began else time.clock_gettime(time.CLOCK_BOOTTIME) - 3600
    return tuple(each for each in xids if each.boot_seconds >= least - 1)
