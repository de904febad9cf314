"""The table of GET_BROKER_RUNTIME_INFO: the keys that mqadmin and exporters read, as texts.

Figures that Tarry does not count are 0. Source: ``AdminBrokerProcessor.prepareRuntimeInfo``; ``BrokerRuntimeStats`` of
apache/rocketmq-exporter, which fails if one of them is missing or has another form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tarry.base.version import VERSION

_STILL = ("putTps", "getTransferredTps", "getTransferedTps", "getFoundTps", "getMissTps", "getTotalTps")
_POOLS = (
    "send",
    "pull",
    "query",
    "ack",
    "litePull",
    "endTransaction",
    "replyMessage",
    "clientManager",
    "consumerManager",
)
_NOUGHTS = (
    "pageCacheLockTimeMills", "consumeQueueDiskRatio", "commitLogMinOffset", "commitLogMaxOffset", "dispatchMaxBuffer",
    "dispatchBehindBytes", "getMessageEntireTimeMax", "putMessageEntireTimeMax", "putMessageTimesTotal",
    "putMessageFailedTimes", "putMessageSizeTotal", "putMessageAverageSize", "remainTransientStoreBufferNumbs",
    "timerReadBehind", "timerOffsetBehind", "timerCongestNum", "timerEnqueueTps", "timerDequeueTps", "putLatency99",
    "putLatency999", "msgPutTotalTodayMorning", "msgPutTotalTodayNow", "msgPutTotalYesterdayMorning",
    "msgGetTotalTodayMorning", "msgGetTotalTodayNow", "msgGetTotalYesterdayMorning",
)  # fmt: skip
_PUT_TIMES = (
    "<=0ms", "0~10ms", "10~50ms", "50~100ms", "100~200ms", "200~500ms", "500ms~1s", "1~2s", "2~3s", "3~4s", "4~5s",
    "5~10s", "10s~",
)  # fmt: skip


def runtime_table(overview: Mapping[str, Any], started_ms: int, levels: int) -> dict[str, str]:
    """Make the table.

    Args:
        overview: the broker's figures (:class:`tarry.api.operations.GetOverview`).
        levels: delay levels that there are; with which of them a message was sent is not counted, so they say 0,0.
    """
    disk, now_ms = overview["disk"], int(overview["now_ms"])
    free = int(disk["free_bytes"])
    total = int(disk.get("total_bytes") or free)
    table = dict.fromkeys(_STILL, "0.0 0.0 0.0") | dict.fromkeys(_NOUGHTS, "0")
    for pool in _POOLS:
        table |= {f"{pool}ThreadPoolQueue{what}": "0" for what in ("Size", "HeadWaitTimeMills")}
        table[f"{pool}ThreadPoolQueueCapacity"] = "10000"
    return table | {
        "brokerActive": "true", "brokerVersionDesc": f"tarry {VERSION}", "brokerVersion": "479",
        "bootTimestamp": str(started_ms), "startAcceptSendRequestTimeStamp": str(started_ms),
        "runtime": _span(now_ms - started_ms), "earliestMessageTimeStamp": str(now_ms),
        "commitLogDirCapacity": f"Total : {_size(total)}, Free : {_size(free)}.",
        "commitLogDiskRatio": str(1 - free / total if total else 0.0), "remainHowManyDataToFlush": "0 B",
        "putMessageDistributeTime": " ".join(f"[{span}]:0" for span in _PUT_TIMES),
        **{f"scheduleMessageOffset_{level}": "0,0" for level in range(1, levels + 1)},
        "accepted": str(overview["accepted"]), "fired": str(overview["fired"]), "diskFreeBytes": str(free),
    }  # fmt: skip


def _span(ms: int) -> str:
    minutes, seconds = divmod(max(0, ms) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _size(size: float) -> str:
    """Write a size as ``MixAll.humanReadableByteCount`` does: a number, a blank, a unit."""
    units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        del units[0]
    return f"{size:.1f} {units[0]}"
