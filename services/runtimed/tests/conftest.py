"""Event loops of these tests.

gRPC's asyncio poller is one for the process and remembers every loop it ever met, so what uses gRPC shares one loop
for the session: `pytestmark = pytest.mark.asyncio(loop_scope="session")`, and fixtures likewise.
"""

import asyncio

asyncio.set_event_loop(None)  # else the first test makes one by asking for it, and nobody closes it
