"""Medians of what share.sh measured, and their ratios to Apache Kafka's."""
import json
import statistics
import sys

RATE, CPU = ("records/s", "rate"), ("us server CPU a record", "cpu_us_rec")
# The figures of a workload, by how its name begins.
FIGURES = {
    "W3 latency": [("p50 ms", "p50"), ("p99 ms", "p99"), ("p99.9 ms", "p999")],
    "W3,": [RATE, CPU],
    "W4, one in ten": [RATE, ("most records open", "max_open"), ("RSS MiB", "rss_mb")],
    "W4, one never": [("records delivered", "n"), RATE, ("RSS MiB", "rss_mb")],
    "W4, 1": [("records/s once they are open", "rate2"), ("us server CPU a record then", "cpu2_us_rec")],
    "W5": [("s in all", "secs"), ("others' p99 ms", "cold_p99"), ("B/record", "rx_b_rec")],
    "transactions": [("transactions/s", "rate"), ("us server CPU a transaction", "cpu_us_rec")],
    "W6": [("s to the first redelivery", "first_s"), ("records open at the kill", "open"), ("acknowledged records again", "again"), ("records lost", "lost")],
}
PEERS = "lacuna", "kafka", "lacuna-fsync"
seen, turns, loads, failed = {}, {}, [], []
for line in open(sys.argv[1]):
    r = json.loads(line)
    peer, name = r["label"].split("/", 1)
    turns[name, peer] = turns.get((name, peer), 0) + 1
    loads.append(r["load1"])
    if r.get("err"):
        failed.append(f"{r['label']}: {r['err']}")
    for figure, field in next(figures for start, figures in FIGURES.items() if name.startswith(start)):
        if r.get(field) is not None:
            seen.setdefault((name, figure), {}).setdefault(peer, []).append(r[field])


def cell(values):
    if not values:
        return ""
    m = statistics.median(values)
    return f"{m:,.0f}" if m >= 100 else f"{m:.3g}"


print("| workload | figure | Lacuna | Kafka 4.4 | ratio | Lacuna, fsync |\n| --- | --- | --- | --- | --- | --- |")
for (name, figure), peers in seen.items():
    lacuna, kafka, fsync = (peers.get(peer) for peer in PEERS)
    ratio = f"{statistics.median(lacuna) / statistics.median(kafka):.2f}" if lacuna and kafka and statistics.median(kafka) else ""
    print(f"| {name} | {figure} | {cell(lacuna)} | {cell(kafka)} | {ratio} | {cell(fsync)} |")
print("turns:", sorted(set(turns.values())), "load:", min(loads), "to", max(loads), "median", statistics.median(loads))
print("\n".join(failed))
