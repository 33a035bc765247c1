"""The servers behind a gateway: each connected, listed, listened to and asked for whoever calls."""
