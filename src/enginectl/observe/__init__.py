"""One source a file; each returns facts or a Gap. `record.py` runs them into a Recording."""
