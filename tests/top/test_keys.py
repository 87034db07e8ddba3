"""Key scripts: what each key does to the view, and that none does more."""

from __future__ import annotations

from typing import Any

from tests.top import scenes

from enginectl.top.app import Top
from enginectl.top.moment import Choice
from enginectl.top.widgets.page import Page
from enginectl.top.widgets.picker import Picker

CHOICES = (Choice(pid=1, engine="vllm", title="vllm serve a"), Choice(pid=2, engine="sglang", title="sglang b"))


async def run(app: Top, *keys: str, size: tuple[int, int] = (100, 30)) -> Any:
    """Press keys on a settled application and hand it back as it is then."""
    async with app.run_test(size=size) as pilot:
        await scenes.settled(pilot)
        for key in keys:
            await pilot.press(key)
            await scenes.settled(pilot)
        seen = {
            "mode": app.playhead.mode,
            "index": app.playhead.index,
            "pages": [s for s in app.screen_stack if isinstance(s, Page)],
            "top": app.screen,
            "rows": [r.thread.role for r in app.table.rows],
            "chosen": app.chosen.node if app.chosen else None,
            "sort": app.sort,
            "notes": [n.message for n in app._notifications],
            "focus": app.focused.id if app.focused else None,
            "feed": app.feed,
        }
    return seen


def play(app: Top, *keys: str, size: tuple[int, int] = (100, 30)) -> Any:
    import asyncio

    return asyncio.run(run(app, *keys, size=size))


def test_the_cursor_starts_at_the_culprit() -> None:
    seen = play(scenes.app(scenes.story("device-hang")))
    assert seen["rows"][0] == "engine-loop" and seen["chosen"] == (4321, 4321)


def test_arrows_move_and_stay_in_the_table() -> None:
    down = play(scenes.app(scenes.story("device-hang")), *["down"] * 9)
    assert down["chosen"][1] == 4326
    assert play(scenes.app(scenes.story("device-hang")), "down", "up", "up")["chosen"] == (4321, 4321)


def test_enter_c_and_help_open_pages_and_escape_closes_them() -> None:
    for key in ("enter", "c", "question_mark", "n"):
        assert len(play(scenes.app(scenes.story("device-hang")), key)["pages"]) == 1
        assert play(scenes.app(scenes.story("device-hang")), key, "escape")["pages"] == []


def test_tab_goes_round_and_enter_restricts_to_a_process() -> None:
    story = scenes.story("device-hang")
    assert play(scenes.app(story), "tab")["focus"] == "tree"
    assert play(scenes.app(story), *["tab"] * 4)["focus"] == "threads"
    assert play(scenes.app(story), "tab", "down", "enter")["rows"] == ["frontend-loop"]
    assert len(play(scenes.app(story), "tab", "down", "enter", "up", "enter")["rows"]) == 4


def test_f_shows_helpers_and_s_changes_the_order() -> None:
    assert "helper" in play(scenes.app(scenes.story("device-hang")), "f")["rows"]
    seen = play(scenes.app(scenes.story("device-hang")), "s", "s", "s", "s")
    assert seen["sort"] == "blame"


def test_pause_freezes_while_moments_keep_coming() -> None:
    import asyncio

    async def script() -> None:
        app = scenes.app(scenes.story("device-hang"))
        async with app.run_test(size=(100, 30)) as pilot:
            await scenes.settled(pilot)
            await pilot.press("p")
            app.post_message(app.Arrived(scenes.moment(99.0, scenes.DIAGNOSES["idle"]())))
            await pilot.pause()
            assert len(app.moments) == 61 and app.shown.moment.at == 59.0 and app.playhead.mode == "paused"
            await pilot.press("left", "left")
            assert app.shown.moment.at == 57.0
            await pilot.press("p")
            await pilot.pause()
            assert app.shown.moment.at == 99.0 and app.playhead.mode == "live"

    asyncio.run(script())


def test_a_replay_seeks() -> None:
    story = scenes.story("deadlock")
    assert play(scenes.app(story, live=False), "end")["index"] == 59
    assert play(scenes.app(story, live=False), "end", "left", "left")["index"] == 57
    assert play(scenes.app(story, live=False), "end", "home")["index"] == 0
    assert play(scenes.app(story, live=False), "home", "right")["index"] == 1
    assert play(scenes.app(story, live=False), "end", "p")["mode"] == "playing"


def test_r_records_through_the_callable_or_says_why_not() -> None:
    saved = play(scenes.app(scenes.story("device-hang"), record=lambda feed: "saved 60 snapshots to x.ecrec"), "r")
    assert "saved 60 snapshots to x.ecrec" in saved["notes"]
    none = play(scenes.app(scenes.story("device-hang")), "r")
    assert any("nothing to record" in note for note in none["notes"])

    def broken(feed: object) -> str:
        raise OSError("disk full")

    failed = play(scenes.app(scenes.story("device-hang"), record=broken), "r")
    assert any("not saved: disk full" in note for note in failed["notes"])


def test_n_asks_for_one_sample_of_the_chosen_process() -> None:
    seen = play(scenes.app(scenes.story("device-hang")), "n")
    assert seen["feed"].native_calls == [4321]


def test_several_engines_are_chosen_from() -> None:
    assert isinstance(play(scenes.app([], choices=CHOICES))["top"], Picker)
    seen = play(scenes.app(scenes.story("idle", "idle"), choices=CHOICES), "down", "enter")
    assert not isinstance(seen["top"], Picker) and seen["feed"] is not None


def test_gone_is_told_and_the_view_lives_on() -> None:
    seen = play(scenes.app(scenes.gone()), "enter", "escape", "c")
    assert len(seen["pages"]) == 1


def test_sizes_from_tiny_to_huge() -> None:
    import asyncio

    async def script() -> None:
        app = scenes.app(scenes.many_ranks())
        async with app.run_test(size=(80, 24)) as pilot:
            await scenes.settled(pilot)
            for size in ((40, 12), (20, 6), (240, 70), (80, 24)):
                await pilot.resize_terminal(*size)
                await pilot.pause()
            await pilot.press(*["down"] * 20)
            assert app.panel("threads").selected == 20

    asyncio.run(script())


def test_a_feed_that_breaks_is_told_in_the_banner() -> None:
    class Broken(scenes.Canned):
        def run(self, publish: Any, stop: Any) -> None:
            raise RuntimeError("boom")

    import asyncio

    async def script() -> None:
        app = scenes.app([])
        app.sources.__dict__["attach"] = lambda pid: Broken([])
        async with app.run_test(size=(80, 24)) as pilot:
            for _ in range(20):
                await pilot.pause(0.05)
                if app.moments:
                    break
            assert "boom" in app.shown.moment.trouble.text
            app._stop.set()

    asyncio.run(script())


def test_no_key_is_there_to_change_the_target() -> None:
    from enginectl.top.keys import BINDINGS

    assert not any(word in b.action for b in BINDINGS for word in ("kill", "signal", "stop", "resume", "restart"))
