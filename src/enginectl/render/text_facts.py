"""The parts of the text report that show plain facts: GPUs, engine counters, gaps, notes and the footer."""

from __future__ import annotations

from enginectl.model.diagnosed import Diagnosis
from enginectl.model.observed import GpuSample
from enginectl.render import words
from enginectl.render.lines import Line, paragraph, remedy
from enginectl.render.next_evidence import full_command


def gpu_sentence(gpu: GpuSample) -> str:
    """One line for one GPU; what was not read is left out."""
    parts = []
    if gpu.utilization_percent is not None:
        parts.append(f"{words.number(gpu.utilization_percent)}% busy")
    if gpu.memory_activity_percent is not None:
        parts.append(f"{words.number(gpu.memory_activity_percent)}% memory activity")
    if gpu.power_watts is not None:
        limit = f" of {words.number(gpu.power_limit_watts)} W" if gpu.power_limit_watts else ""
        parts.append(f"{words.number(gpu.power_watts)}{limit or ' W'}")
    if gpu.memory_used_bytes is not None:
        parts.append(_memory(gpu.memory_used_bytes, gpu.memory_total_bytes))
    if gpu.throttle_reasons:
        parts.append("throttled: " + words.listing([words.clean(reason) for reason in gpu.throttle_reasons], "and"))
    if gpu.xid is not None:
        parts.append(f"Xid {gpu.xid}")
    if gpu.ecc_errors_uncorrected:
        parts.append(words.plural(gpu.ecc_errors_uncorrected, "uncorrected ECC error"))
    name = f" {words.clean(gpu.name)}" if gpu.name else ""
    return f"GPU {gpu.index}{name}: " + (", ".join(parts) or "nothing could be read")


def _memory(used: int, total: int | None) -> str:
    if not total:
        return f"{words.size(used)} used"
    amount, _, unit = words.size(total).partition(" ")
    shown, _, used_unit = words.size(used).partition(" ")
    return f"{shown} of {amount} {unit}" if unit == used_unit else f"{shown} {used_unit} of {amount} {unit}"


def gpu_lines(diagnosis: Diagnosis, width: int) -> list[Line]:
    """One line per GPU."""
    return [line for gpu in diagnosis.gpus for line in paragraph(gpu_sentence(gpu), width, first="  ", rest="    ")]


def counter_sentence(diagnosis: Diagnosis) -> str:
    """The engine's counters in one line, empty when there are none."""
    counters = diagnosis.engine_counters
    parts = []
    for name in ("running", "waiting"):
        if name in counters:
            parts.append(f"{words.number(counters[name])} {name}")
    read_in, made = counters.get("prompt_tokens_per_second"), counters.get("tokens_per_second")
    if read_in:
        parts.append(f"{words.number(read_in)} prompt tokens/s")
    if made or (made is not None and not read_in):  # an embedding engine makes none
        parts.append(f"{words.number(made)} tokens/s")
    if "kv_usage_ratio" in counters:
        parts.append(f"KV cache {words.ratio(counters['kv_usage_ratio'])} used")
    if counters.get("preemptions_per_second"):
        parts.append(f"{words.number(counters['preemptions_per_second'])} preemptions/s")
    if counters.get("unanswered_requests"):
        parts.append(f"{words.number(counters['unanswered_requests'])} clients without an answer")
    if counters.get("frozen_seconds"):
        parts.append(f"nothing moved for {words.seconds(counters['frozen_seconds'])}")
    return ", ".join(parts)


def counter_lines(diagnosis: Diagnosis, width: int, *, verbose: bool = False) -> list[Line]:
    """The counters in one line, a silent endpoint in another; every counter when `verbose`."""
    lines = paragraph(counter_sentence(diagnosis), width, first="  ", rest="  ")
    if verbose:
        for name, value in sorted(diagnosis.engine_counters.items()):
            lines.extend(paragraph(f"{words.clean(name)} {words.number(value)}", width, first="    ", rest="      "))
    return lines + paragraph(endpoint_sentence(diagnosis), width, first="  ", rest="  ")


def endpoint_sentence(diagnosis: Diagnosis) -> str:
    """How the metrics endpoint failed to answer, empty when it answered or was not asked."""
    endpoint = diagnosis.endpoint
    if endpoint is None or endpoint.state == "ok":
        return ""
    after = f" after {words.seconds(endpoint.seconds)}" if endpoint.seconds is not None else ""
    detail = f" ({words.clean(endpoint.detail)})" if endpoint.detail else ""
    return f"{words.clean(endpoint.url)} did not give counters: {words.clean(endpoint.state)}{after}{detail}"


def gap_lines(diagnosis: Diagnosis, width: int) -> list[Line]:
    """What could not be read, why, and the step that opens it."""
    lines: list[Line] = []
    for gap in diagnosis.gaps:
        text = f"{words.clean(gap.source)}: {words.clean(gap.reason)}"
        lines.extend(paragraph(text, width, first="  - ", rest="    "))
        lines.extend(remedy(gap.remedy, width))
    return lines


def cost_sentence(diagnosis: Diagnosis) -> str:
    """What the observation cost, or how much of the saved evidence was understood."""
    cost, read = diagnosis.cost, diagnosis.understood
    if read is not None:
        counts = [words.plural(read.processes, "process", "processes"), words.plural(read.threads, "thread")]
        formats = f" ({words.clean(', '.join(read.formats))})" if read.formats else ""
        lost = f", {words.plural(read.lines_skipped, 'line')} skipped" if read.lines_skipped else ""
        torn = f", {words.plural(read.torn, 'torn thread line')}" if read.torn else ""
        return f"Read from saved evidence{formats}: {', '.join(counts)}{lost}{torn}."
    if cost.samples == 0:
        return f"Cost: no stack was read, the target was never paused; {words.seconds(cost.wall_seconds)} in all."
    pause = words.seconds(cost.pause_seconds_max)
    return (
        f"Cost: target paused {pause} at most, {words.plural(cost.samples, 'sample')}"
        f" in {words.seconds(cost.wall_seconds)}."
    )


def tier_sentences(diagnosis: Diagnosis) -> tuple[str, list[tuple[str, str]]]:
    """The tiers reached, in one sentence, and for each missing one what it would add and how to unlock it.

    A step that a gap already told is not told again.
    """
    told = {gap.remedy for gap in diagnosis.gaps}
    reached = [words.clean(tier.name) for tier in diagnosis.tiers if tier.reached]
    missing = []
    for tier in diagnosis.tiers:
        if not tier.reached:
            adds = f"; it adds {words.clean(tier.adds)}" if tier.adds else ""
            unlock = "" if tier.unlock in told else full_command(tier.unlock, diagnosis)
            missing.append((f"{words.clean(tier.name)} is missing{adds}", unlock))
    return (f"Evidence tiers: {', '.join(reached) or 'none'} reached." if diagnosis.tiers else "", missing)


def footer_lines(diagnosis: Diagnosis, width: int) -> list[Line]:
    """Cost and tiers."""
    reached, missing = tier_sentences(diagnosis)
    lines = paragraph(f"{cost_sentence(diagnosis)} {reached}", width, style="dim")
    for text, unlock in missing:
        lines.extend(paragraph(text, width, first="  ", rest="    ", style="dim"))
        if unlock:
            lines.extend(remedy(unlock, width))
    return lines
