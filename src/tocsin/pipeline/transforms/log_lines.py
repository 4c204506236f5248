"""Lines of a router's store log → the same lines with the group they belong to.

Two lines may be applied separately only if they cannot concern the same thing. A line is about an *entity* (a token, or
a queue of an SMP router) or a *child* of one (a subscription), whose first line names its entity. Entities that ever
shared a *node* (a device token, a queue, an id) form one group, since one may displace the other. Names are hashed: a
hash collision only makes a group larger than necessary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

ORDER: Final = ("block", "place")
"""Columns that order lines as in their file."""
SERVICES: Final = 0
"""The group of all lines about services; there are few of them."""


def ntf_line_keys(lines: DataFrame) -> DataFrame:
    """Adds `entity` (token), `child` (subscription) and `nodes` to `value`, `block`, `place`. See `ntf_store_log`."""
    tag = _word(0)
    token = F.when(tag == "TCREATE", _named(_word(1))).when(tag == "SCREATE", _named(_word(4)))
    child = F.when(tag == "SCREATE", _named(_word(1))).when(tag.isin("SSTATUS", "SDELETE"), _word(1))
    device = F.when(tag == "TCREATE", F.concat(_named(_word(2)), F.lit(" "), _word(3))).when(
        tag == "TUPDATE", F.concat(_word(2), F.lit(" "), _word(3))
    )
    # Without the address, which can be spelled in several ways.
    queue = F.when(tag == "SCREATE", F.regexp_extract(_word(2), "/([^/]*)$", 1))
    others = tag.isin("SCREATE", "SSTATUS", "SDELETE", "SERVICE")
    return _line_keys(
        lines,
        entity=F.coalesce(token, F.when(~others, _word(1))),
        child=child,
        nodes={
            "d": device,
            "q": queue,
            "s": F.when(tag == "SCREATE", child),
        },
    )


def smp_line_keys(lines: DataFrame) -> DataFrame:
    """As `ntf_line_keys`, for SMP logs: queues by recipient id; other ids are nodes. See `smp_store_log`."""
    tag = _word(0)
    of_queue = F.when(tag == "CREATE", _named(_word(1))).when(tag != "NEW_SERVICE", _word(1))
    created = {
        name: F.when(tag == "CREATE", F.nullif(F.regexp_extract(_text(), f" {name}=([^ ]+)", 1), F.lit("")))
        for name in ("sid", "link_id", "notifier")
    }
    return _line_keys(
        lines,
        entity=of_queue,
        child=F.lit(None).cast("string"),
        nodes={
            "s": created["sid"],
            "l": F.coalesce(created["link_id"], F.when(tag == "LINK", _word(2))),
            "n": F.coalesce(created["notifier"], F.when(tag == "NOTIFIER", _word(2))),
        },
    )


def linked_entities(lines: DataFrame) -> DataFrame:
    """Pairs (`entity`, `other`) that share a node: enough of them to find all groups."""
    having = lines.where(F.col("entity").isNotNull())
    shares = having.select("entity", F.explode("nodes").alias("node"))
    ends = shares.groupBy("node").agg(F.min("entity").alias("other"), F.max("entity").alias("last"))
    common = ends.where(F.col("other") != F.col("last"))
    # Nodes are unique in `common`.
    pairs = shares.join(common, on="node", how="inner").where(F.col("entity") != F.col("other"))
    return pairs.select("entity", "other").distinct()


def grouped_lines(lines: DataFrame, groups: DataFrame) -> DataFrame:
    """`group` and the line with its place. `groups` maps `entity` to `first` in groups of more than one entity."""
    owners = (
        lines.where(F.col("child").isNotNull() & F.col("entity").isNotNull())
        .groupBy("child")
        .agg(F.min("entity").alias("owner"))
    )
    owned = lines.join(owners, on="child", how="left")  # children are unique in `owners`
    entity = F.coalesce("entity", "owner", "child", F.lit(SERVICES))
    named = owned.select("value", *ORDER, entity.alias("entity"))
    known = named.join(F.broadcast(groups), on="entity", how="left")  # entities are unique in `groups`
    return known.select(F.coalesce("first", "entity").alias("group"), *ORDER, "value")


def _line_keys(lines: DataFrame, *, entity: Column, child: Column, nodes: Mapping[str, Column]) -> DataFrame:
    hashed = [F.when(name.isNotNull(), F.xxhash64(F.lit(kind), _plain(name))) for kind, name in nodes.items()]
    return lines.select(
        "value",
        *ORDER,
        _hash("e", entity).alias("entity"),
        _hash("c", child).alias("child"),
        F.array_compact(F.array(*hashed)).alias("nodes"),
    )


def _hash(kind: str, name: Column) -> Column:
    return F.when(name.isNotNull(), F.xxhash64(F.lit(kind), _plain(name)))


def _plain(name: Column) -> Column:
    """Without padding, which writers may omit."""
    return F.regexp_replace(name, "[=\\r]+$", "")


def _named(word: Column) -> Column:
    """The text after `name=`."""
    return F.regexp_replace(word, "^[^=]*=", "")


def _word(number: int) -> Column:
    words = F.split(_text(), " ")
    return F.coalesce(F.get(words, F.lit(number)), F.lit(""))


def _text() -> Column:
    """The line as text. Only fields written by other programs may be invalid UTF-8, and these hold no names."""
    return F.col("value").cast("string")
