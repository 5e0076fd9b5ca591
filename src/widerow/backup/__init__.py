"""Backups of the embedded store: taken while it runs, restored into an empty folder."""
