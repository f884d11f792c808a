"""Medians of what share.sh measured, and their ratios to Apache Kafka's."""
import json
import statistics
import sys

figures = {"records/s": "rate", "us server CPU": "cpu_us_rec", "B/record": "rx_b_rec", "s": "secs", "others' p99 ms": "cold_p99", "RSS MiB": "rss_mb"}
seen = {}
for line in open(sys.argv[1]):
    r = json.loads(line)
    peer, name = r["label"].split("/", 1)
    for figure, field in figures.items():
        if r.get(field):
            # Rates of the second phase, when the gaps are open.
            value = r.get("rate2", r[field]) if field == "rate" else r[field]
            seen.setdefault((name, figure), {}).setdefault(peer, []).append(value)


def cell(values):
    if not values:
        return ""
    m = statistics.median(values)
    return f"{m:,.0f}" if m >= 100 else f"{m:.3g}"


print("| workload | figure | Lacuna | Kafka 4.4 | ratio |\n| --- | --- | --- | --- | --- |")
for (name, figure), peers in seen.items():
    lacuna, kafka = peers.get("lacuna"), peers.get("kafka")
    ratio = f"{statistics.median(lacuna) / statistics.median(kafka):.2f}" if lacuna and kafka else ""
    print(f"| {name} | {figure} | {cell(lacuna)} | {cell(kafka)} | {ratio} |")
