"""Whole clusters in one process: virtual time, a network, disks and clocks that fail on purpose.

Nothing here sleeps, opens a socket or asks the operating system for anything. One integer, the seed, decides
every delay, every fault and every tie; the same seed replays the same run, event by event.
`docs/simulator.md` says what is simulated and what is not.
"""
