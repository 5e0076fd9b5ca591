"""The command line, `widerow`: one file a command group. Client commands speak HTTP, also to a store on this machine."""
