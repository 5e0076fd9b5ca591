"""The command line: `widerow`. One file a command group; every client command speaks HTTP, also to a store on this machine."""
