"""Row keys that people can read: `KeySpec`, a template compiled to an encoder and a decoder."""

from widerow.keys.spec import KeySpec

__all__ = ["KeySpec"]
