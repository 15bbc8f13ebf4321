"""Pod addresses on 127.77.0.0/16, without a clash between two instances on one machine (design §10).

An instance claims one /24 by binding an abstract unix socket named after it: the kernel frees the name when the last
holder of the socket has gone, and the guard holds it until every process has ended.
"""

import random
import socket

from kruntimes.common.errors import Busy, Terminal

NETWORK = "127.77"
GATEWAY_HOST, ROUTER_HOST = 1, 2
FIRST_HOST, LAST_HOST = 3, 254
FIRST_SUBNET, LAST_SUBNET = 0, 255


class Addresses:
    """The addresses of one instance; each is given to one Pod at a time, the longest unused first.

    gateway, router: addresses that no Pod gets; they are known before anything runs, and stay when a Pod is replaced.
    """

    def __init__(self, claim: socket.socket, subnet: int) -> None:
        self.claim = claim
        self.gateway = f"{NETWORK}.{subnet}.{GATEWAY_HOST}"
        self.router = f"{NETWORK}.{subnet}.{ROUTER_HOST}"
        self._free = [f"{NETWORK}.{subnet}.{host}" for host in range(FIRST_HOST, LAST_HOST + 1)]

    @classmethod
    def take(cls, *, draw: random.Random) -> "Addresses":
        """Claims a free subnet; raises Terminal where all are taken."""
        subnets = list(range(FIRST_SUBNET, LAST_SUBNET + 1))
        draw.shuffle(subnets)
        for subnet in subnets:
            claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                claim.bind(f"\0kruntimes.io/krt-dev/{NETWORK}.{subnet}")
            except OSError:
                claim.close()
                continue
            return cls(claim, subnet)
        raise Terminal(f"every network of {NETWORK}.0.0/16 is taken by another krt dev")

    def allocate(self) -> str:
        """Returns an address that no Pod has; raises Busy where there is none."""
        if not self._free:
            raise Busy(f"more than {LAST_HOST - FIRST_HOST + 1} Pods on one node")
        return self._free.pop(0)

    def release(self, address: str) -> None:
        """Gives an address back; it is the last to be used again."""
        self._free.append(address)

    def close(self) -> None:
        """Gives up this holder's part of the claim."""
        self.claim.close()
