"""`python -m node` is the `mayfly` command."""

from node.command_line import main

if __name__ == "__main__":
    main()
