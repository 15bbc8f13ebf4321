"""Which part stands where: the embedded API server as it is served. Wire. A part is one line here; see `parts`."""

from pathlib import Path

from kruntimes.local.apiserver import access, changes, protobuf
from kruntimes.local.apiserver.certificates import Authority
from kruntimes.local.apiserver.kinds.registry import ACTS, STRATEGIES
from kruntimes.local.apiserver.loops.all_loops import loops
from kruntimes.local.apiserver.parts import Parts


def parts(state: Path, authority: Authority) -> Parts:
    """Everything that is plugged into the API core. state: the server's folder, for keys that outlive a restart."""
    made = Parts(strategies=dict(STRATEGIES), acts=dict(ACTS))
    access.install(made, key=access.signing_key(state))
    made.protobuf = protobuf.decode
    made.loops = loops(ca=authority.pem.decode())
    changes.install(made)
    return made
