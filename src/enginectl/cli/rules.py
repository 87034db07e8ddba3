"""`enginectl rules`: the closed list of findings."""

from __future__ import annotations

from typing import Annotated

import typer


def rules(
    json_: Annotated[
        bool, typer.Option("--json", envvar="ENGINECTL_RULES_JSON", help="JSON instead of a table.")
    ] = False,
    knowledge: Annotated[str, typer.Option(metavar="DIR", help="More rules.")] = "",
) -> None:
    """List every finding: code, name, state, severity, and what it needs to be told."""
    from enginectl.cli import pipeline

    rows = sorted(pipeline.knowledge_of(knowledge).rules.values(), key=lambda r: r.id)
    if json_:
        import msgspec

        pipeline.write(msgspec.json.format(msgspec.json.encode(rows)).decode(), "")
        return
    lines = [f"{'CODE':6} {'FINDING':24} {'STATE':9} {'SEVERITY':9} NEEDS"]
    lines += [f"{r.id:6} {r.finding:24} {r.state:9} {r.severity:9} {', '.join(r.needs)}".rstrip() for r in rows]
    lines.append("")
    lines.append("enginectl explain CODE shows one of them in full.")
    pipeline.write("\n".join(lines), "")
