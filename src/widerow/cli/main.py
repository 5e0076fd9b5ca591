"""`widerow`: the entry point. Every failure ends in one line and an exit code, from the first import on.

Rule: this module imports nothing before `main` runs. Ctrl-C may come while the commands are being imported.
"""


def main() -> None:
    """Run the command that the arguments name."""
    try:
        import os  # noqa: PLC0415
        import signal  # noqa: PLC0415
        import sys  # noqa: PLC0415

        # A shell has it ignored for what runs in the background.
        heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if heeded:  # an import that is interrupted may fail in its own words, or hang; nothing is open yet
            signal.signal(signal.SIGINT, lambda *_: os._exit(130))
        from widerow.cli.commands import run  # noqa: PLC0415
        from widerow.cli.failure import heed_later  # noqa: PLC0415

        sys.unraisablehook = heed_later

        if heeded:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except BaseException as error:  # noqa: BLE001
        from widerow.cli.failure import leave  # noqa: PLC0415

        leave(error)


if __name__ == "__main__":
    main()
