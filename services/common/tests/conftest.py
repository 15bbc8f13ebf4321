"""What all tests of the common part share."""

import asyncio

# Python 3.11 makes an event loop for whoever asks for one before any was set, and a pytest plugin asks ahead of
# synchronous tests: the loop would be left unclosed, which is a warning, which is an error.
asyncio.set_event_loop(None)
