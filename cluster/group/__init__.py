"""One replica of a group: consensus, the state machine it carries, sessions, clock, snapshots. Pure."""
