"""GPUs: the real bindings on our own small NVML library, which plays a scenario file. Each read is a process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from enginectl.model.observed import Gap, GpuSample
from enginectl.observe.gpu import open_gpus
from enginectl.observe.kernel_log import KernelLog, Xid, parse_record

SCENES = Path(__file__).parents[2] / "fixtures" / "nvml"
LOOK = """
import json, sys
import msgspec
from enginectl.observe.gpu import open_gpus
pids, reads, limit = json.loads(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
reader, gaps = open_gpus(timeout_seconds=limit)
results = []
for _ in range(reads if reader else 0):
    results.append(reader.read(pids, timeout_seconds=limit))
if reader:
    reader.close()
sys.stdout.buffer.write(msgspec.json.encode({"opened": reader is not None, "gaps": gaps, "reads": results}))
"""


class Told(msgspec.Struct):
    opened: bool
    gaps: tuple[Gap, ...]
    reads: list[tuple[tuple[GpuSample, ...], tuple[Gap, ...]]]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc here to build the NVML double")
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    place = tmp_path_factory.mktemp("nvml")
    command = ["gcc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-O1", "-o"]
    subprocess.run([*command, str(place / "libnvidia-ml.so.1"), str(SCENES / "nvml_stub.c")], check=True)
    return place


def look(library: Path, scene: Path | str, *, pids: list[int] | None = None, reads: int = 1, limit: float = 10) -> Told:
    path = SCENES / f"{scene}.txt" if isinstance(scene, str) else scene
    env = {**os.environ, "LD_LIBRARY_PATH": str(library), "NVML_STUB_SCENARIO": str(path)}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    asked = [msgspec.json.encode(pids or []).decode(), str(reads), str(limit)]
    done = subprocess.run([sys.executable, "-c", LOOK, *asked], env=env, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr == b""
    return msgspec.json.decode(done.stdout, type=Told)


def test_real_work_spinning_idle_and_waiting_are_told_apart_by_load_power_and_traffic(library: Path) -> None:
    """The three numbers together, and the activity of the SMs where the GPU has it."""
    seen = {}
    for scene in ("idle", "real-work", "spinning-kernel"):
        each = look(library, scene, reads=2).reads[1][0][0]
        share = (each.power_watts or 0) / (each.power_limit_watts or 1)
        seen[scene] = (each.utilization_percent, round(share, 2), each.memory_activity_percent, each.sm_activity_ratio)
    assert seen == {
        "idle": (0.0, 0.1, 0.0, 0.0),
        "real-work": (97.0, 0.73, 62.0, pytest.approx(0.885)),
        "spinning-kernel": (100.0, 0.17, 0.0, pytest.approx(0.008)),
    }
    first, second = look(library, "waiting-collective").reads[0][0]
    assert (first.utilization_percent, second.utilization_percent) == (100.0, 0.0)


def test_activity_needs_two_reads(library: Path) -> None:
    (first, _), (second, _) = look(library, "real-work", reads=2).reads
    assert (first[0].sm_activity_ratio, first[0].tensor_activity_ratio, first[0].dram_bandwidth_ratio) == (None,) * 3
    assert second[0].tensor_activity_ratio == pytest.approx(0.31)
    assert second[0].dram_bandwidth_ratio == pytest.approx(0.64)


def test_all_values_of_one_gpu_with_their_units(library: Path) -> None:
    (samples, gaps) = look(library, "real-work").reads[0]
    assert gaps == ()
    assert samples == (
        GpuSample(
            index=0,
            name="Stub GPU 0",
            utilization_percent=97.0,
            memory_activity_percent=62.0,
            memory_used_bytes=74_000_000_000,
            memory_total_bytes=85_899_345_920,
            power_watts=512.0,
            power_limit_watts=700.0,
            sm_clock_mhz=1980.0,
            throttle_reasons=("sw_power_cap",),
            ecc_errors_uncorrected=0,
            retired_pages=0,
            mig=False,
        ),
    )


def test_eight_gpus_by_index_with_the_odd_ones(library: Path) -> None:
    samples, gaps = look(library, "eight-gpus").reads[0]
    assert [each.index for each in samples] == list(range(8))
    assert samples[5].throttle_reasons == ("sw_thermal_slowdown", "hw_thermal_slowdown")
    assert samples[5].sm_clock_mhz == 900.0
    assert (samples[6].retired_pages, samples[6].ecc_errors_uncorrected) == (3, 2)
    assert samples[0].throttle_reasons == ()
    assert gaps == ()


def test_mig_has_no_load_for_the_whole_gpu(library: Path) -> None:
    (sample,), gaps = look(library, "mig").reads[0]
    assert sample.mig is True
    assert sample.utilization_percent is None
    assert sample.power_watts == 150.0
    assert gaps == ()


def test_fields_that_are_not_supported_are_none_not_zero(library: Path) -> None:
    (sample,), gaps = look(library, "unsupported", reads=2).reads[1]
    assert sample == GpuSample(index=0, name="Stub GPU 0", memory_used_bytes=1000, memory_total_bytes=2000)
    assert gaps == ()


def test_a_lost_gpu_is_a_fault_and_a_gap_and_the_others_are_read(library: Path) -> None:
    samples, gaps = look(library, "lost-gpu").reads[0]
    assert [each.fault for each in samples] == [None, None, "lost", None]
    assert samples[2].utilization_percent is None
    assert samples[3].utilization_percent == 100.0
    assert "GPU 2 has fallen off the bus" in gaps[0].reason


def test_a_gpu_that_wants_a_reset(library: Path) -> None:
    samples, gaps = look(library, "reset-required").reads[0]
    assert samples[0].fault == "reset-required"
    assert "needs a reset" in gaps[0].reason


def test_values_that_are_denied_are_a_gap(library: Path) -> None:
    (sample,), gaps = look(library, "some-denied").reads[0]
    assert sample.power_watts is None
    assert sample.utilization_percent == 50.0
    assert "refuses some values" in gaps[0].reason


@pytest.mark.parametrize(
    ("scene", "words"),
    [
        ("driver-mismatch", "different versions"),
        ("driver-not-loaded", "driver is not loaded"),
        ("no-permission", "refuses this user"),
        ("none", "shows no GPU"),
    ],
)
def test_nvml_that_does_not_start_is_a_gap_with_its_cause(library: Path, scene: str, words: str) -> None:
    told = look(library, scene)
    assert not told.opened
    assert words in told.gaps[0].reason
    assert told.gaps[0].remedy


def test_a_start_that_hangs_is_bounded(library: Path) -> None:
    started = time.monotonic()
    told = look(library, "hang-at-start", limit=0.4)
    assert not told.opened
    assert "did not answer" in told.gaps[0].reason
    assert time.monotonic() - started < 20


def test_a_call_that_hangs_is_bounded_named_and_not_tried_again(library: Path) -> None:
    told = look(library, "hang", reads=2, limit=0.7)
    (samples, gaps), (later, again) = told.reads
    assert [each.index for each in samples] == [0, 1, 2, 3]
    assert [each.fault for each in samples] == [None, None, None, "unresponsive"]
    assert "GPU 3 (nvmlDeviceGetUtilizationRates) did not answer" in gaps[0].reason
    assert later == ()
    assert "not asked again" in again[0].reason


def scene_with(tmp_path: Path, pid: int) -> Path:
    place = tmp_path / "scene.txt"
    place.write_text(f"count 1\nutil 5\nmem 1\npid {pid}\npid_used 4096\n")
    return place


def test_process_memory_of_the_engine_and_of_others(library: Path, tmp_path: Path) -> None:
    scene = scene_with(tmp_path, os.getpid())
    (mine,), gaps = look(library, scene, pids=[os.getpid(), 1]).reads[0]
    assert mine.process_memory_bytes == {str(os.getpid()): 4096}
    assert gaps == ()
    (others,), gaps = look(library, scene, pids=[1]).reads[0]
    assert others.process_memory_bytes == {"other": 4096}
    assert "match none of the engine's" in gaps[0].reason


TITLED = """
import sys, setproctitle
setproctitle.setproctitle("VLLM::EngineCore")
print("ready", flush=True)
input()
"""


def test_ps_shows_gpu_memory_of_each_process(library: Path, tmp_path: Path) -> None:
    pytest.importorskip("setproctitle")
    with subprocess.Popen(
        [sys.executable, "-c", TITLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as engine:
        assert engine.stdout is not None and engine.stdout.readline() == "ready\n"
        place = tmp_path / "scene.txt"
        place.write_text(f"count 1\nutil 5\nmem 1\npid {engine.pid}\npid_used {3 * 2**29}\n")
        env = {**os.environ, "LD_LIBRARY_PATH": str(library), "NVML_STUB_SCENARIO": str(place)}
        told = [
            subprocess.run([sys.executable, "-m", "enginectl", "ps", *more], env=env, capture_output=True, text=True)
            for more in ([], ["--json"])
        ]
        engine.kill()
    (line,) = [text for text in told[0].stdout.splitlines() if text.split()[:1] == [str(engine.pid)]]
    assert "GPU MEM" in told[0].stdout.splitlines()[0] and "1.5 GiB" in line
    (row,) = [row for row in msgspec.json.decode(told[1].stdout) if row["pid"] == engine.pid]
    assert row["gpu_memory_bytes"] == 3 * 2**29


@pytest.fixture
def inner_process() -> Iterator[tuple[int, int]]:
    """A process in a pid namespace of its own: (pid as seen here, its last number inside, not used out here)."""
    script = "echo 54320 > /proc/sys/kernel/ns_last_pid || exit 1; sleep 60 & echo $!; wait"
    words = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c"]
    child = subprocess.Popen([*words, script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert child.stdout is not None
    inside = child.stdout.readline().strip()
    seen = [0]
    try:
        if not inside or os.path.exists(f"/proc/{inside}"):
            pytest.skip("no pid namespace of this kind can be made here")
        shells = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        seen = [int(pid) for pid in Path(f"/proc/{shells[0]}/task/{shells[0]}/children").read_text().split()]
        yield seen[0], int(inside)
        os.kill(int(shells[0]), 9)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a pid namespace of its own")
def test_a_pid_as_its_own_namespace_numbers_it_is_mapped(
    library: Path, tmp_path: Path, inner_process: tuple[int, int]
) -> None:
    outside, inside = inner_process
    (sample,), _ = look(library, scene_with(tmp_path, inside), pids=[outside]).reads[0]
    assert sample.process_memory_bytes == {str(outside): 4096}


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="this machine has an NVIDIA driver")
def test_without_nvml_there_is_a_gap_with_a_remedy() -> None:
    reader, gaps = open_gpus()
    assert reader is None
    assert gaps[0].source == "gpu" and gaps[0].remedy


RECORD = "4,1234,5678901,-;NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def test_a_gpu_error_of_the_kernel_log() -> None:
    assert parse_record(RECORD) == Xid((0, 0x65, 0), 79, 5.678901)
    assert parse_record("6,1,1,-;usb 1-1: new device") is None
    assert parse_record("") is None


def test_the_kernel_log_is_read_on_from_where_it_ended(tmp_path: Path) -> None:
    place = tmp_path / "kmsg"
    os.mkfifo(place)
    end = os.open(place, os.O_RDWR)
    log = KernelLog(str(place))
    try:
        assert log.readable
        os.write(end, RECORD.encode())
        assert [each.number for each in log.xids()] == [79]
        os.write(end, RECORD.replace(": 79", ": 31").encode())
        assert [each.number for each in log.xids()] == [79, 31]
    finally:
        log.close()
        os.close(end)


def test_a_kernel_log_that_may_not_be_read_tells_nothing(tmp_path: Path) -> None:
    log = KernelLog(str(tmp_path / "none"))
    assert not log.readable
    assert log.xids() == ()
    log.close()
