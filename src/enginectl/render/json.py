"""The JSON report: the field names are a contract, new keys may be added, none may go."""

from __future__ import annotations

from typing import Any

import msgspec

from enginectl.model.diagnosed import ChainLink, Culprit, Diagnosis, Evidence, Finding, ProcessRow, ThreadRow, Verdict
from enginectl.render.words import clean_block

Fields = dict[str, Any]


def render_json(diagnosis: Diagnosis) -> str:
    """The `--json` document, indented, in a fixed key order, ending in a newline.

    Shape: one diagnosis -> one JSON object; what is not known is null, ratios are 0..1, times seconds, sizes
    bytes. Characters that a terminal would act on are replaced. Errors: none.
    """
    raw = msgspec.json.encode(_clean(document(diagnosis)))
    return msgspec.json.format(raw, indent=2).decode() + "\n"


def document(diagnosis: Diagnosis) -> Fields:
    """The report as plain dictionaries and lists, in the order of the contract."""
    return {
        "schema_version": diagnosis.schema_version,
        "verdict": _verdict(diagnosis.verdict),
        "findings": [_finding(finding) for finding in diagnosis.findings],
        "chain": [_link(link) for link in diagnosis.chain],
        "processes": [_process(process) for process in diagnosis.processes],
        "gpus": [_fields(gpu) for gpu in diagnosis.gpus],
        "engine_counters": dict(sorted(diagnosis.engine_counters.items())),
        "tiers": {tier.name: _fields(tier, "reached", "adds", "unlock") for tier in diagnosis.tiers},
        "gaps": [_fields(gap) for gap in diagnosis.gaps],
        "cost": _fields(diagnosis.cost),
        "endpoint": _fields(diagnosis.endpoint) if diagnosis.endpoint else None,
        "understood": _fields(diagnosis.understood) if diagnosis.understood else None,
        "notes": list(diagnosis.notes),
        "buckets": list(diagnosis.buckets),
        "rules": [
            {
                "code": rule.code,
                "outcome": rule.outcome.value,
                "missing": list(rule.missing),
                "evidence": [_evidence(item) for item in rule.evidence],
            }
            for rule in diagnosis.rules
        ],
    }


def _verdict(verdict: Verdict) -> Fields:
    return {
        **_fields(verdict, "state", "outcome", "finding", "code"),
        "candidates": list(verdict.candidates[:4]),
        "needs": list(verdict.needs),
        **_fields(verdict, "confidence", "summary"),
        "culprit": _culprit(verdict.culprit) if verdict.culprit else None,
    }


def _culprit(culprit: Culprit) -> Fields:
    names = ("pid", "process_role", "rank", "tid", "thread_role", "wait_point", "wait_class")
    return _known(_fields(culprit, *names), "wait_point")


def _finding(finding: Finding) -> Fields:
    return {
        **_fields(finding, "code", "finding", "severity", "confidence", "summary"),
        "evidence": [_evidence(item) for item in finding.evidence],
        "advice": [_fields(line, "id", "text", "expect", "command") for line in finding.advice],
        "docs": list(finding.docs),
        "state": finding.state,
    }


def _evidence(item: Evidence) -> Fields:
    return _fields(item, "fact", "of", "value", "unit", "op", "threshold", "meaning")


def _link(link: ChainLink) -> Fields:
    names = ("pid", "thread_role", "waits_for", "through", "wait_point", "tid", "process_role", "wait_class", "meaning")
    return _known(_fields(link, *names), "waits_for", "through", "wait_point")


def _process(process: ProcessRow) -> Fields:
    names = ("pid", "role", "rank", "title", "engine", "engine_version", "python_version", "os_state")
    return {
        **_known(_fields(process, *names), "engine", "engine_version", "python_version", "os_state"),
        "threads": [_thread(thread) for thread in process.threads],
        "cpu_ratio": process.cpu_ratio,
    }


def _thread(thread: ThreadRow) -> Fields:
    names = (
        "tid", "name", "role", "wait_point", "wait_class", "running_ratio", "cpu_ratio", "gil_ratio",
        "runqueue_ratio", "activity", "os_state", "meaning", "frames",
    )  # fmt: skip
    return _known(_fields(thread, *names), "wait_point")


def _fields(source: msgspec.Struct, *names: str) -> Fields:
    """The named fields of a struct, all of them when none is named."""
    return {name: getattr(source, name) for name in names or source.__struct_fields__}


def _known(fields: Fields, *names: str) -> Fields:
    """The same fields with null where an empty string means "not known"."""
    return {name: None if name in names and value == "" else value for name, value in fields.items()}


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean_block(value)
    if isinstance(value, dict):
        return {clean_block(key): _clean(item) for key, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, list | tuple) else value
