"""Has the name of a module that the host uses."""


def handler(event: object) -> str:
    return "mine"
