"""`enginectl explain`: the page of one finding or one wait point."""

from __future__ import annotations

from typing import Annotated

import typer


def explain(
    what: Annotated[
        str, typer.Argument(metavar="CODE|FINDING|WAIT-POINT", help="EC401, scheduler-bound, or a wait point.")
    ],
    knowledge: Annotated[str, typer.Option(metavar="DIR", help="More rules and wait points.")] = "",
) -> None:
    """Show the page of one finding or one wait point."""
    import difflib

    from enginectl.cli import pipeline
    from enginectl.errors import UsageError
    from enginectl.knowledge.pages import rule_page, wait_page

    rows = pipeline.knowledge_of(knowledge)
    for rule in rows.rules.values():
        if what.upper() == rule.id or what == rule.finding:
            pipeline.write(rule_page(rule, rows), "")
            return
    row = rows.wait(what)
    if row is None:
        names = [r.id for r in rows.rules.values()] + [r.finding for r in rows.rules.values()]
        names += [w.id for waits in rows.waits.values() for w in waits]
        near = difflib.get_close_matches(what, names, n=3)
        hint = f"did you mean {', '.join(near)}?" if near else "enginectl rules lists the findings"
        raise UsageError(f"no finding or wait point is called {what!r}", fix=hint)
    pipeline.write(wait_page(row), "")
