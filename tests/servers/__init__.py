"""Real servers for tests and for trying things out: fetched once, started on loopback, gone with the run.

    cache       where fetched things are kept, and how they get there once
    toolchain   Java, Maven and Go: found, or what to install
    launch      what ties a server's life to ours
    process     a server as a process: started, asked whether it is up, paused, stopped, killed
    cassandra   Apache Cassandra, one node
    sstables    what it has on disk
    cluster     a few of them together
    bigtable    the Bigtable emulator
    kafka       Apache Kafka, one node
    mosquitto   Eclipse Mosquitto, an MQTT broker
    fixtures    the same for pytest, once per run
    __main__    `make servers`

A further one is a module here that subclasses `process.Server`, an entry in `__main__.SERVERS` and a
fixture. Nothing outside this package knows how a server is had.
"""
