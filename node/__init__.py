"""One broker process: AMQP, routing, the queue state machine, expiry, dead-lettering, HTTP, command line."""
