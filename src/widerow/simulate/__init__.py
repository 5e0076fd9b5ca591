"""A fleet that does not exist, and the load it makes: for demos, tests and benchmarks."""
