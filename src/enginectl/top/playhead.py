"""Which moment is shown: the newest, a frozen one, or the place of a replay. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from enginectl.top.moment import Moment


class Playhead:
    """`index` is the moment shown. `following` sticks to the newest; `playing` moves on with time."""

    def __init__(self, *, live: bool) -> None:
        self.live = live
        self.following = live
        self.playing = not live
        self.index = 0
        self._reached: float | None = None

    @property
    def mode(self) -> str:
        """live, paused, replay or playing."""
        if self.live:
            return "live" if self.following else "paused"
        return "playing" if self.playing else "replay"

    def arrived(self, count: int) -> None:
        """There are `count` moments now."""
        if self.following:
            self.index = count - 1

    def dropped(self, number: int) -> None:
        """The oldest `number` moments were let go."""
        self.index = max(0, self.index - number)

    def toggle(self, count: int) -> None:
        """Pause or go on. A replay that had reached its end starts again."""
        if self.live:
            self.following = not self.following
            self.arrived(count)
            return
        self.playing = not self.playing
        self._reached = None
        if self.playing and self.index >= count - 1:
            self.index = 0

    def seek(self, index: int, count: int) -> None:
        """Go to a moment and stay there."""
        self.index = max(0, min(count - 1, index))
        self.following = self.playing = False
        self._reached = None

    def play(self, moments: Sequence[Moment], seconds: float, *, complete: bool) -> bool:
        """Move on by `seconds` of the recording's time; whether another moment is shown now."""
        if not self.playing or not moments:
            return False
        start = moments[self.index].at if self._reached is None else self._reached
        self._reached = min(start + seconds, moments[-1].at)
        before = self.index
        while self.index + 1 < len(moments) and moments[self.index + 1].at <= self._reached:
            self.index += 1
        if complete and self.index == len(moments) - 1:
            self.playing = False
        return self.index != before or not self.playing
