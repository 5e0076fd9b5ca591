"""Alerts: what is watched, when it fires, and how people are told."""
