"""Planning before anything runs: a described fleet, and what it costs to store and to serve."""
