"""Pictures of docs/direct-notifications.md, whose text is the source of these rows."""

from __future__ import annotations

from tools.diagrams.ladders import Column, Row, ladder

_DEVICE, _SMP, _NTF, _PROVIDER = "device", "SMP router", "NTF router", "push provider"
_NOTHING = "–"


def pictures() -> dict[str, str]:
    return {
        "direct-messages": ladder(
            "Direct notifications",
            "Who sends what to whom, from the registration of a device to the end of a queue",
            [Column(_DEVICE), Column(_SMP), Column(_NTF), Column(_PROVIDER, is_end=True)],
            [
                Row("TNEW, TVFY (as today)", (_DEVICE,), _NTF),
                Row("token id, NTF key (id, X25519 key, end)", (_NTF,), _DEVICE),
                Row("NEW or NSKEY: notifier id, NTF address, packet", (_DEVICE,), _SMP),
                Row("SFWD packet", (_SMP,), _NTF),
                Row("SFWR accepted", (_NTF,), _SMP),
                Row("NSOK accepted", (_SMP,), _DEVICE),
                Row("NSRV once, then NSSUB at each connection", (_NTF,), _SMP),
                Row("NMSG of every associated queue", (_SMP,), _NTF),
                Row("push, sealed for the device", (_NTF,), _PROVIDER),
                Row("DEL packet", (_DEVICE,), _SMP),
                Row("SFWD packet", (_SMP,), _NTF),
            ],
        ),
        "direct-queue": ladder(
            "A queue at the NTF router",
            "What leads a queue from one state to another",
            [
                Column(_NOTHING, is_end=True),
                Column("associated"),
                Column("doubtful"),
                Column("ended", is_end=True),
            ],
            [
                Row("packet A, signed by an active token's key", (_NOTHING,), "associated"),
                Row("packet A again", ("associated",), "associated"),
                Row("packet D of the same token", ("associated", "doubtful"), "ended"),
                Row("packet D, which came before A", (_NOTHING,), "ended"),
                Row("all NTF keys of that moment have expired", ("ended",), _NOTHING),
                Row("DELD from the SMP router", ("associated",), "doubtful"),
                Row("NMSG", ("doubtful",), "associated"),
                Row("a day has passed", ("doubtful",), _NOTHING),
                Row("the token is deleted", ("associated",), _NOTHING),
            ],
        ),
        "direct-packet": ladder(
            "A packet at the SMP router",
            "What becomes of a packet",
            [
                Column(_NOTHING, is_end=True),
                Column("pending"),
                Column("accepted"),
                Column("refused"),
                Column("dropped", is_end=True),
            ],
            [
                Row("NSKEY, NEW, NPKT, NDEL or DEL with a packet: kept on disk", (_NOTHING,), "pending"),
                Row("SFWR A: the queue is associated", ("pending",), "accepted"),
                Row("SFWR K, T, Q; or the NTF router is not a direct one (U)", ("pending",), "refused"),
                Row("7 days", ("pending",), "dropped"),
                Row("NPKT with another packet", ("refused",), "pending"),
            ],
        ),
    }
