"""Named measurements that rules compare. A fact owns its unit and the sources it needs; it judges nothing."""

from __future__ import annotations

from enginectl.diagnose import facts_engine, facts_threads, facts_world
from enginectl.diagnose.fact import FACTS, Fact, Value

__all__ = ["FACTS", "GROUPS", "Fact", "Value"]

GROUPS = (facts_threads, facts_engine, facts_world)
"""The modules that register facts on import."""
