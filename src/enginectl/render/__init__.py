"""Reports: each module turns one `Diagnosis` into a string."""
