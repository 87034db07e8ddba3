"""From topology and clocks to a verdict: named facts, rules as data, one answer or an honest "undecided"."""
