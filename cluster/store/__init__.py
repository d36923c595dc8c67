"""The shell under the log: write-ahead files and LMDB."""
