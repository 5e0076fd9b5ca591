"""The key lab: rules that find bad row keys, a simulation of a fleet through a key, and pictures of the load."""
