"""Moving a store from one engine to another: `copy` moves the rows, `checksum` says whether both hold the same."""
