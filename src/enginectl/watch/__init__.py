"""Continuous observation: a ring of the last minutes, triggers as data, actions within limits, an exporter."""
