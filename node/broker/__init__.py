"""The AMQP semantics of connections and channels, over the cluster facade."""
