"""How far one invocation is, for whoever follows it: an event stream that ends with the call (design §7).

Pure: no clock, no task. Those who follow are told on the spot and must neither wait nor raise.
"""

from collections.abc import Callable

from kruntimes.functions.wire.events import Progress

MAX_FOLLOWERS = 16
"""Of one call: people who watch it, and what serves them."""

Follower = Callable[[Progress | None], None]
"""Told each step, and None once at the end."""


class TooManyFollowers(Exception):
    """MAX_FOLLOWERS follow this call already."""


class Feed:
    """The stream of one call. last: the latest step, None before the first."""

    __slots__ = ("_ended", "_followers", "last")

    def __init__(self) -> None:
        self.last: Progress | None = None
        self._followers: list[Follower] = []
        self._ended = False

    def tell(self, progress: Progress) -> None:
        """The call is that far; what goes backwards or comes after the end is dropped."""
        if self._ended or (self.last is not None and progress.done < self.last.done):
            return
        self.last = progress
        for follower in tuple(self._followers):
            follower(progress)

    def follow(self, follower: Follower) -> Callable[[], None]:
        """Tells *follower* the latest step at once, if there is one, then each; what is returned ends that.

        Raises TooManyFollowers.
        """
        if len(self._followers) >= MAX_FOLLOWERS:
            raise TooManyFollowers(f"{MAX_FOLLOWERS} follow this invocation")
        self._followers.append(follower)
        if self.last is not None:
            follower(self.last)

        def leave() -> None:
            if follower in self._followers:
                self._followers.remove(follower)

        return leave

    def end(self) -> None:
        """The call has ended; told once."""
        self._ended = True
        followers, self._followers = self._followers, []
        for follower in followers:
            follower(None)
