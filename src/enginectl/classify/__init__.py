"""From facts to meaning: wait points, roles, and who waits for whom. Pure: no clock, no files."""
