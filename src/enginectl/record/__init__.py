"""Recordings on disk: the writer, the paced loop that feeds it, and what a file for sharing may hold."""
