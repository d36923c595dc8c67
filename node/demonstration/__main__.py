"""`python -m node.demonstration` is `mayfly demo`."""

from node.command_line.demo_command import command

if __name__ == "__main__":
    command()
