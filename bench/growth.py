"""Whether things get slower as the fleet grows: the same figures at 1,000, 10,000 and 100,000 devices, as one table.

python -m bench.growth [--quick] [--sizes 1000,10000,100000] [--seconds 20]
"""

from __future__ import annotations

import argparse

from bench import ingest, query
from bench.lib.figures import Figures, short


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.growth", description="Whether things get slower as the fleet grows.")
    parser.add_argument("--sizes", default="1000,10000,100000")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each run")
    parser.add_argument("--layout", default="", help="rows or packed; the server's default otherwise")
    parser.add_argument("--folder", help="where stores are made; the system's temporary folder otherwise")
    parser.add_argument("--quick", action="store_true", help="5 s a run, few questions")
    options = parser.parse_args()
    figures = Figures("growth", vars(options))
    table: dict[int, dict[str, tuple[float, str]]] = {}
    for size in map(int, options.sizes.split(",")):
        print(f"# {size} devices", flush=True)
        table[size] = measure(size, options)
        for name, (value, unit) in table[size].items():
            figures.add(f"{name}_at_{size}", value, unit)
    print(markdown(table))
    print(f"written to {figures.save()}")


def measure(size: int, options: argparse.Namespace) -> dict[str, tuple[float, str]]:
    """Both benchmarks at that size."""
    common = ["--devices", str(size), *(["--layout", options.layout] if options.layout else [])]
    common += ["--folder", options.folder] if options.folder else []
    seconds = 5.0 if options.quick else options.seconds
    written = ingest.run(ingest.parse([*common, "--seconds", str(seconds), "--formats", "line"]))
    read = query.run(query.parse([*common, "--asks", "200" if options.quick else "1000"]))
    return {**written.found, **read.found}


def markdown(table: dict[int, dict[str, tuple[float, str]]]) -> str:
    """Figures down, sizes across."""
    sizes = list(table)
    names = list(dict.fromkeys(name for found in table.values() for name in found))
    lines = [f"| figure | {' | '.join(f'{size:,} devices' for size in sizes)} |", "| --- |" + " ---: |" * len(sizes)]
    for name in names:
        found = [table[size].get(name) for size in sizes]
        cells = [f"{short(f[0])} {f[1]}" if f else "" for f in found]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
