"""Definitions in RabbitMQ's JSON, in and out, and the names that may stand there."""
