"""`enginectl ps`: the engines on this host, as trees."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

import typer


def short_command(command: Sequence[str]) -> str:
    """A command line without the interpreter and its folders: `vllm serve MODEL --port 8000`, secrets taken out."""
    from enginectl.observe.redact import redact_command

    words = list(redact_command(command)[0])
    if len(words) > 1 and words[0].rsplit("/", 1)[-1].startswith("python"):
        words = words[2:] if words[1] == "-m" and len(words) > 2 else words[1:]
    return " ".join([words[0].rsplit("/", 1)[-1], *words[1:]])


def _gpu_memory(pids: Sequence[int]) -> dict[int, int]:
    """GPU memory in bytes by pid, over all GPUs; empty when NVML cannot tell."""
    from enginectl.cli import pipeline
    from enginectl.observe.gpu import open_gpus

    reader, _ = open_gpus() if pids else (None, ())
    if reader is None:
        return {}
    try:
        samples, gaps = reader.read(pids)
    finally:
        reader.close()
    for gap in gaps:
        pipeline.note(f"GPU memory is not complete: {gap.reason}", quiet=False)
    found: dict[int, int] = {}
    for pid, size in ((pid, size) for sample in samples for pid, size in sample.process_memory_bytes.items()):
        if pid.isdecimal() and size:  # NVML knows the process, and not always its memory
            found[int(pid)] = found.get(int(pid), 0) + size
    return found


def ps(
    json_: Annotated[bool, typer.Option("--json", envvar="ENGINECTL_PS_JSON", help="JSON instead of a table.")] = False,
    knowledge: Annotated[str, typer.Option(metavar="DIR", help="More engines.")] = "",
    all_: Annotated[bool, typer.Option("--all", envvar="ENGINECTL_PS_ALL", help="Helper processes too.")] = False,
) -> None:
    """List engines on this host: pid, engine and version, role, rank, parent, uptime, state, GPU memory."""
    from enginectl.classify.identify import ranks_of
    from enginectl.cli import pipeline
    from enginectl.observe import target
    from enginectl.render.processes import ProcessLine, render_processes, render_processes_json

    rows = pipeline.knowledge_of(knowledge)
    packages = pipeline.packages_of(rows)
    table = target.list_processes(pipeline.Recogniser(rows))
    trees = {root: target.tree_of(table, root) for root in target.engines_on_host(table)}
    memory = _gpu_memory([seen.pid for tree in trees.values() for seen in tree])
    lines: list[ProcessLine] = []
    for root, tree in trees.items():
        launches = any(seen.role == "frontend" and seen.pid != root for seen in tree)
        versions = {s.engine: target.engine_version(s.pid, packages.get(s.engine, ())) for s in tree if s.engine}
        depth = {root: 0}
        for seen in tree:
            depth[seen.pid] = depth.get(seen.parent_pid, -1) + 1 if seen.pid != root else 0
            if seen.role == "helper" and not all_:
                continue
            lines.append(
                ProcessLine(
                    pid=seen.pid,
                    parent_pid=seen.parent_pid,
                    depth=depth[seen.pid],
                    title=seen.title if len(seen.command) < 2 else short_command(seen.command),
                    engine=seen.engine or table[root].engine or "",
                    engine_version=versions.get(seen.engine or table[root].engine or "") or "",
                    role="helper" if seen.pid == root and launches else seen.role or "",
                    ranks=ranks_of(seen.title),
                    uptime_seconds=max(0.0, time.time() - seen.started_at),
                    state=seen.state,
                    gpu_memory_bytes=memory.get(seen.pid),
                )
            )
    pipeline.write(render_processes_json(lines) if json_ else render_processes(lines, pipeline.terminal_width()), "")
