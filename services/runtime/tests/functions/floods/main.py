"""More output than anyone can keep."""

import os


def bytes_200_mb(event: object) -> str:
    block = b"spam and eggs\n" * 5000
    for _ in range(200_000_000 // len(block)):
        os.write(1, block)
    print("the last line")
    return "intact"


def one_long_line(event: object) -> str:
    print("x" * 10_000_000)
    print("the last line")
    return "intact"
