"""Stored reports and rollups as columns, and columns as bytes: pure functions that know no engine, clock or service."""
