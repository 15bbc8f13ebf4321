"""Needs what is not there."""

import does_not_exist_anywhere


def handler(event: object) -> object:
    return does_not_exist_anywhere
