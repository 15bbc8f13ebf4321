"""Which part stands where: the embedded API server as it is served. Wire.

A part is one line here; `parts` says what each must be.
"""

from kruntimes.local.apiserver.parts import Parts


def parts() -> Parts:
    """Everything that is plugged into the API core."""
    return Parts()
