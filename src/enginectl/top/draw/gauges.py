"""Below: the device gauges and the engine's counters, each with its last minute."""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text

from enginectl.model.observed import GpuSample
from enginectl.render import words
from enginectl.top.draw.style import ALARM, DIM, TROUBLE, sparkline, wrap
from enginectl.top.screenful import Screenful

_SPARK = 24
_TONES = {"use": "#6fbf5f", "pow": "#e8853a", "mem": "#7aa2e8"}


def gauges(screen: Screenful, width: int) -> list[Text]:
    """Counters, then one line a device, or the reason why there is none."""
    return [*_counters(screen, width), *_devices(screen, width)]


def _devices(screen: Screenful, width: int) -> list[Text]:
    newest = _gpus(screen)
    if not newest:
        gaps = screen.diagnosis.gaps if screen.diagnosis else ()
        reason = next((g.reason for g in gaps if g.source == "gpu"), "")
        text = f"no GPU readable here: {words.clean(reason)}" if reason else "no GPU was looked at"
        return [Text(part, DIM, no_wrap=True) for part in wrap(text, width, 3)]
    return [_device(screen, gpu, width) for gpu in newest]


def _gpus(screen: Screenful) -> tuple[GpuSample, ...]:
    return screen.diagnosis.gpus if screen.diagnosis else ()


def _power(gpu: GpuSample) -> float | None:
    return gpu.power_watts / gpu.power_limit_watts if gpu.power_watts is not None and gpu.power_limit_watts else None


def _memory(gpu: GpuSample) -> float | None:
    known = gpu.memory_used_bytes is not None and gpu.memory_total_bytes
    return (gpu.memory_used_bytes or 0) / (gpu.memory_total_bytes or 1) if known else None


def _use(gpu: GpuSample) -> float | None:
    return None if gpu.utilization_percent is None else gpu.utilization_percent / 100


def _device(screen: Screenful, gpu: GpuSample, width: int) -> Text:
    line = Text(no_wrap=True)
    narrow = width < 47
    line.append(f"G{gpu.index} " if narrow else f"GPU {gpu.index} ", "bold")
    if gpu.fault or gpu.xid is not None:
        line.append(f"{words.clean(gpu.fault or '')} {f'Xid {gpu.xid}' if gpu.xid is not None else ''}".strip(), ALARM)
        line.append(" ")
    spark = 3 if narrow else min(_SPARK, (width - 37) // 3)
    for name, measure in (("use", _use), ("pow", _power), ("mem", _memory)):
        line.append(f"{name} ", DIM)
        line.append(f"{words.ratio(measure(gpu)):>4} ")
        if not (narrow and name == "mem"):
            line.append(sparkline(_series(screen, gpu.index, measure), spark, 1.0) + " ", _TONES[name])
    if width >= 110 and gpu.power_watts is not None:
        line.append(f"{gpu.power_watts:.0f} W  {words.size(gpu.memory_used_bytes)}", DIM)
    line.truncate(width)
    return line


def _series(screen: Screenful, index: int, measure: Callable[[GpuSample], float | None]) -> list[float | None]:
    rows = [m.diagnosis.gpus for m in screen.window if m.diagnosis and m.classes is not None]
    found = (next((g for g in row if g.index == index), None) for row in rows)
    return [measure(gpu) if gpu else None for gpu in found]


def _counters(screen: Screenful, width: int) -> list[Text]:
    counters = screen.diagnosis.engine_counters if screen.diagnosis else {}
    if not counters:
        gaps = screen.diagnosis.gaps if screen.diagnosis else ()
        reason = next((g.reason for g in gaps if g.source == "engine-counters"), "")
        text = f"no engine counters: {words.clean(reason)}" if reason else "no engine counters yet"
        return [Text(part, DIM, no_wrap=True) for part in wrap(text, width, 2)]
    first, second, third = (Text(no_wrap=True) for _ in range(3))
    for name, key in (("running", "running"), ("waiting", "waiting")):
        _put(first, name, words.number(counters.get(key)))
    _put(first, "KV", words.ratio(counters.get("kv_usage_ratio")))
    _put(second, "tokens/s out", words.number(counters.get("tokens_per_second")))
    if "prompt_tokens_per_second" in counters:
        _put(second, "in", words.number(counters["prompt_tokens_per_second"]))
    room = min(24, width - len(second.plain) - 1)
    if room >= 6:
        second.append(sparkline(_tokens(screen), room), "#6fbf5f")
    if frozen := counters.get("frozen_seconds"):
        third.append(f"no progress {words.seconds(frozen)}  ", TROUBLE)
    if owed := counters.get("unanswered_requests"):
        age = counters.get("unanswered_seconds")
        _put(third, "unanswered", words.number(owed) + (f" ({words.seconds(age)})" if age else ""))
    for line in (first, second, third):
        line.truncate(width, overflow="ellipsis")
    return [first, second, third] if third.plain else [first, second]


def _put(line: Text, name: str, value: str) -> None:
    line.append(f"{name} ", DIM)
    line.append(f"{value}  ", "bold")


def _tokens(screen: Screenful) -> list[float | None]:
    rows = [m.diagnosis.engine_counters for m in screen.window if m.diagnosis and m.classes is not None]
    keys = ("tokens_per_second", "prompt_tokens_per_second")
    known = [[row[key] for key in keys if key in row] for row in rows]
    return [sum(values) if values else None for values in known]
