"""Raises, with a long text."""


def prepare() -> None:
    raise RuntimeError("not today " + "ü" * 10_000)
