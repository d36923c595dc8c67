"""The client's side of AMQP 0-9-1, as far as a mirror of a stream in another cluster needs it. Pure: octets in,
messages and octets out."""
