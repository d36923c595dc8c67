"""The operations of a channel, one module per AMQP class."""
