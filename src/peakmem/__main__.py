"""`python -m peakmem`."""

from peakmem.cli import command

if __name__ == "__main__":
    command()
