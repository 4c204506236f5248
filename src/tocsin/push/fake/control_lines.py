"""Control lines of the fake provider, for people and for tests in other languages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tocsin.errors import TocsinError
from tocsin.push.fake import behaviours
from tocsin.push.fake.fcm import FakeFcm
from tocsin.push.fake.server import FakeApns

HELP: Final = """\
what becomes of pushes: the next one, or times=N, or times=always; of one device with token=…
  accept                  200
  lose                    200, but the device does not get it
  answer STATUS [REASON]  also retry-after=SECONDS, timestamp=MILLISECONDS
  delay SECONDS           200, later
  hold                    no answer until `release`
  reset [CODE]            RST_STREAM; 7 refuses the stream
  goaway [last=ID] [code=N] [close=yes]
  close                   the connection, abruptly
  close-mid-answer [STATUS]
  raw HEX                 these bytes
what happens at once
  release [token=…]       accept what is held
  clear [token=…]         accept everything from now on
  settings [streams=N] [window=N]
  close-all               all connections
  refuse, listen          connections"""

FCM_HELP: Final = (
    HELP
    + """
access tokens
  tokens …                what becomes of the next request for one: accept, answer, delay, hold, reset, close, raw
  revoke                  refuse all that were given out
  life SECONDS            of later ones"""
)

_STREAMS, _WINDOW = 3, 4


class BadLine(TocsinError):
    """The line is not a command of the fake provider."""


async def obey(apns: FakeApns, line: str) -> None:
    """Raises BadLine."""
    verb, *rest = line.split() or ["help"]
    words = [word for word in rest if "=" not in word]
    named = dict(word.split("=", 1) for word in rest if "=" in word)
    token = named["token"].encode() if "token" in named else None
    try:
        match verb:
            case "release":
                apns.release(device_token=token)
            case "clear":
                apns.script.clear(token)
            case "settings":
                wanted = {"streams": _STREAMS, "window": _WINDOW}
                apns.change_settings({wanted[name]: int(value) for name, value in named.items()})
            case "close-all":
                apns.close_connections()
            case "refuse":
                apns.refuse_connections()
            case "listen":
                await apns.listen()
            case _:
                behaviour = _BEHAVIOURS[verb](words, named)
                apns.behave(behaviour, device_token=token, times=_times(named.get("times", "1")))
    except (ValueError, KeyError, IndexError, TypeError, OSError) as error:
        raise BadLine(f"unknown command {line.strip()!r}; `help` lists the commands") from error


async def obey_fcm(fcm: FakeFcm, line: str) -> None:
    """Raises BadLine."""
    verb, *rest = line.split() or ["help"]
    words = [word for word in rest if "=" not in word]
    named = dict(word.split("=", 1) for word in rest if "=" in word)
    try:
        match verb:
            case "tokens":
                behaviour = _BEHAVIOURS[words[0]](words[1:], named)
                fcm.behave_tokens(behaviour, times=_times(named.get("times", "1")))
            case "revoke":
                fcm.revoke_tokens()
            case "life":
                fcm.token_life = int(words[0])
            case _:
                await obey(fcm, line)
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise BadLine(f"unknown command {line.strip()!r}; `help` lists the commands") from error


def _times(text: str) -> int | None:
    return None if text == "always" else int(text)


def _answer(words: list[str], named: Mapping[str, str]) -> behaviours.Behaviour:
    timestamp = int(named["timestamp"]) if "timestamp" in named else None
    reason = words[1] if len(words) > 1 else None
    return behaviours.Respond(int(words[0]), reason, timestamp, named.get("retry-after"))


def _go_away(words: list[str], named: Mapping[str, str]) -> behaviours.Behaviour:
    last = int(named["last"]) if "last" in named else None
    return behaviours.GoAway(last, int(named.get("code", "0")), named.get("close") == "yes")


_BEHAVIOURS: Final[dict[str, Callable[[list[str], Mapping[str, str]], behaviours.Behaviour]]] = {
    "accept": lambda _words, _named: behaviours.ACCEPT,
    "lose": lambda _words, _named: behaviours.LOSE,
    "answer": _answer,
    "delay": lambda words, _named: behaviours.Delay(float(words[0])),
    "hold": lambda _words, _named: behaviours.Hold(),
    "reset": lambda words, _named: behaviours.ResetStream(*map(int, words)),
    "goaway": _go_away,
    "close": lambda _words, _named: behaviours.CloseConnection(),
    "close-mid-answer": lambda words, _named: behaviours.CloseMidAnswer(*map(int, words)),
    "raw": lambda words, _named: behaviours.SendRaw(bytes.fromhex(words[0])),
}
