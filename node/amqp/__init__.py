"""AMQP 0-9-1, the server's side of one connection: octets in, events out; no sockets and no clock."""
