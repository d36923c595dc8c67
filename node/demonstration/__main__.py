"""`python -m node.demonstration` is `mayfly demo`."""

from mayfly.node.command_line.demo_command import command

if __name__ == "__main__":
    command()
