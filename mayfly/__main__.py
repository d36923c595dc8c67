"""`python -m mayfly` is the `mayfly` command."""

from mayfly.node.command_line import main

if __name__ == "__main__":
    main()
