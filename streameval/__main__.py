"""``python -m streameval``."""

from streameval.cli import main

if __name__ == "__main__":
    main(prog_name="streameval")
