"""The real vLLM: its environment, a tiny model, our fault plugin, and one healthy server shared by many scenarios."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.real_vllm.harness import Engine, free_port

HERE = Path(__file__).parent
ENVIRONMENT = Path(os.environ.get("ENGINECTL_VLLM_ENV", Path.home() / ".cache" / "enginectl" / "vllm-0.27.1"))
MISSING = f"there is no real vLLM at {ENVIRONMENT}: make vllm-env"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.real_vllm)
            item.add_marker(pytest.mark.timeout(600))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each environment that is not there, whatever the verbosity."""
    skipped = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", ()) if HERE.name in report.nodeid]
    for reason in dict.fromkeys(str(text).removeprefix("Skipped: ") for text in skipped):
        terminalreporter.write_line(f"real_vllm: SKIPPED LOUDLY: {reason}")


@pytest.fixture(scope="session")
def vllm_bin() -> Path:
    """The `bin` folder of the environment; skips loudly without it."""
    if not (ENVIRONMENT / "bin" / "vllm").exists():
        pytest.skip(MISSING)
    return ENVIRONMENT / "bin"


@pytest.fixture(scope="session")
def model(vllm_bin: Path) -> Path:
    """The tiny model, made once and kept beside the environment."""
    folder = ENVIRONMENT.parent / "tiny-qwen3"
    subprocess.run([vllm_bin / "python", HERE / "make_model.py", folder], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def plugin(vllm_bin: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fault plugin, installed into a folder of its own that goes on PYTHONPATH."""
    source, site = tmp_path_factory.mktemp("plugin") / "source", tmp_path_factory.mktemp("site")
    shutil.copytree(HERE / "fault_plugin", source)
    pip = [vllm_bin / "python", "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", site, source], check=True, capture_output=True)
    return site


@pytest.fixture(scope="session")
def environment(plugin: Path) -> dict[str, str]:
    """Environment variables of every vLLM process here."""
    return {
        "PYTHONPATH": str(plugin),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }


@pytest.fixture(scope="session")
def serve(
    vllm_bin: Path, model: Path, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Engine]:
    """Makes a `vllm serve`; extra words go on its command line, keywords into its environment."""

    def make(*words: str, **variables: str) -> Engine:
        port = free_port()
        argv = [vllm_bin / "vllm", "serve", model, "--served-model-name", "tiny", "--port", port, "--enforce-eager"]
        argv += ["--max-model-len", "2048", *words]
        return Engine([str(word) for word in argv], environment | variables, tmp_path_factory.mktemp("vllm"), port)

    return make


@pytest.fixture(scope="module")
def server(serve: Callable[..., Engine]) -> Iterator[Engine]:
    """One healthy server; the scenarios of a module arm and take back their faults."""
    with serve() as engine:
        yield engine.ready()
