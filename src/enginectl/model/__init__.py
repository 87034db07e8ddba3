"""The types that flow between the stages: observed facts, classified threads, the diagnosis."""
