"""Files of routers as seeds: a line of every kind, in an order in which each of them has an effect."""

from __future__ import annotations

from typing import Final

from fuzz import fixed_parties as fixed
from fuzz import samples
from tocsin.durable.log_fields import encode_field
from tocsin.ntf_router.store.logs import change_log
from tocsin.ntf_router.store.logs.store_log import SubscriptionAdded, TokenAdded
from tocsin.ntf_router.store.records import SubscriptionRecord, TokenRecord
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.statuses import SubscriptionState, TokenState, TokenStatus

SMP_LOGS: Final = (
    b"\n".join(
        (
            b"NEW_SERVICE service_id=c3J2 role=N cert=Y2Vy,Yw== cert_hash=ZnBy created_at=17",
            b"CREATE rid=cnJy rk=a2tr rdh=ZGRk sid=c3Nz sk= queue_mode=M status=off",
            b"CREATE rid=-_8= rk=a2tr,bA== rdh=ZGRk sid=c3N6 sk=S0tL queue_mode=C link_id=bG5r queue_data=Zml4 dXNy"
            b' notifier=bnRm a2V5 c2Vj nsrv=c3J2 updated_at=1750000000 status=blocked,reason=spam,notice={"ttl":9}',
            b"SECURE cnJy a2V5",
            b"KEYS cnJy a2V5,bA==",
            b"LINK cnJy bG5r Zml4 dXNy",
            b"LDELETE cnJy",
            b"NOTIFIER cnJy bnRn a2V5 c2Vj",
            b"QUEUE_SERVICE cnJy N c3J2",
            b"SUSPEND cnJy",
            b"BLOCK cnJy reason=content",
            b"UNBLOCK cnJy",
            b"TIME cnJy 1750000000",
            b"NDELETE -_8=",
            b"DELETE -_8=",
            b"",
        )
    ),
    b"v3 cnJy bWlk 17 flags=T -_8=\nv3 cnJy bWll 17 quota\n",
    b"v1 bnRn bWlk 17 bm9u bWV0\n",
    b"M v3 cnJy bWlm 18 flags=F \nN v1 bnRn bWlm 18 bm9v bWV0\nR cnJy bWlk\nD bnRn bm9u\n",
    b"NTF_ROUTER c3J2 bnRmOi8vQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQT1AYS5i a2V5 17\n"
    b"PRIORITY bnRn 3\nDONE cGlk\n",
)

_TOKEN: Final = TokenRecord(
    samples.ID,
    DeviceToken(PushProvider.APNS_TEST, b"ab"),
    TokenStatus(TokenState.ACTIVE),
    fixed.ENTITY_KEY.public.der,
    fixed.ENTITY_DH_KEY.raw,
    bytes(32),
    bytes(32),
)
_SUBSCRIPTION: Final = SubscriptionRecord(
    b"a subscription of 24 byt",
    samples.ID,
    samples.NOTIFIER_QUEUES[0],
    fixed.ENTITY_KEY.der,
    SubscriptionState.NEW,
)
_T, _S = encode_field(samples.ID), encode_field(_SUBSCRIPTION.subscription_id)
_ROUTER: Final = samples.NOTIFIER_QUEUES[0].text().rpartition("/")[0].encode()

NTF_LOGS: Final = (
    b"\n".join(
        (
            TokenAdded(_TOKEN).encode(),
            SubscriptionAdded(_SUBSCRIPTION).encode(),
            b"TSTATUS " + _T + b" INVALID,UNREGISTERED",
            b"TSTATUS " + _T + b" ACTIVE",
            b"SERVICE " + _ROUTER + b" service=c3J2",
            b"SSTATUS " + _S + b" ACTIVE service=T",
            b"SSTATUS " + _S + b" ERR SMP error QUOTA",
            b"SERVICE " + _ROUTER + b" service=off",
            b"TCRON " + _T + b" 30",
            b"TTIME " + _T + b" 86400",
            b"TUPDATE " + _T + b" apns_test cd " + encode_field(bytes(32)),
            b"",
        )
    ),
    b"\n".join(
        (
            change_log.state_line(1),
            change_log.totals_line(9, 3, 4),
            change_log.failed_line("expired", 1),
            change_log.registered_line(samples.ID, 17),
            change_log.cron_sent_line(samples.ID, 18),
            b"",
        )
    ),
    b"\n".join(
        (
            change_log.came_line(_SUBSCRIPTION.subscription_id, 1750000000.5, bytes(24), b"meta"),
            change_log.ended_line(_SUBSCRIPTION.subscription_id, "accepted"),
            change_log.came_line(_SUBSCRIPTION.subscription_id, 1750000001.5, bytes(24), b"meta"),
            b"",
        )
    ),
)
SETTINGS: Final = (
    b"[STORE_LOG]\nenable: on\n[TRANSPORT]\nhost: smp.example.com\nport: 5223,443\nlog_tls_errors: off\n",
    b"[INACTIVE_CLIENTS]\ndisconnect: on\nttl: 21600\ncheck_interval: 3600\n[TOCSIN]\nmax_connections: 10\n",
    b'[transport]\nhost = "ntf.example.com"\nport = [443]\n[tocsin]\nlisten = ["::1"]\nmax_connections = 5\n',
    b"[TOCSIN]\ndelivery_push_services: updates.push.services.mozilla.com push.example:8443\n",
    b"[TRANSPORT]\nport = 0x10\n\xff",
)
EVENT: Final = (
    b'{"v":1,"at":1794700000000000,"stage":"received","router":"ntf","instance":"a",'
    b'"notification":"n","queue":"q"}'
)
RETURNED: Final = b'{"number":"1","outcome":"accepted"}'
PLANS: Final = (
    b'{"version":1,"made_at":1,"entries":1}\n{"action":"resubscribe","kind":"missing_at_smp","router":"smp://a"}\n',
    b'{"version":1,"as_of":1,"entries":0}\n',
)
