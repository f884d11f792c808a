"""Medians of what beside.sh measured, and their ratios to Apache Kafka's."""
import json
import statistics
import sys

rows = [json.loads(line) for line in open(sys.argv[1])]
names = {"produce": "W1 produce", "consume": "W2 consume", "keyrange": "W7 one key in 16", "keyrange-server": "W7 one key in 16"}


def key(r):
    name = names.get(r["w"], r["w"])
    return f"{name}, {r['size']} B values"


def figures(r):
    wanted = "cpu_us_wanted" in r or "rx_b_wanted" in r
    return {
        "rate/s": r.get("rate"),
        "us server CPU": r.get("cpu_us_wanted") if wanted else r.get("cpu_us_rec"),
        "B wanted": r.get("rx_b_wanted"),
    }


groups = {}
for r in rows:
    for name, value in figures(r).items():
        if value:
            groups.setdefault((key(r), name), {}).setdefault(r["label"], []).append(value)
print("| workload | figure | " + " | ".join(["Lacuna", "Kafka 4.4", "ratio", "Lacuna, fsync", "kfake"]) + " |")
print("| --- | --- | --- | --- | --- | --- | --- |")
for (workload, figure), peers in groups.items():
    m = {p: statistics.median(v) for p, v in peers.items()}
    ratio = f"{m['lacuna'] / m['kafka']:.2f}" if "lacuna" in m and "kafka" in m else ""
    cells = [f"{m[p]:,.3g}" if p in m and m[p] < 1000 else f"{m[p]:,.0f}" if p in m else "" for p in ("lacuna", "kafka")]
    rest = [f"{m[p]:,.3g}" if p in m and m[p] < 1000 else f"{m[p]:,.0f}" if p in m else "" for p in ("lacuna-fsync", "kfake")]
    print(f"| {workload} | {figure} | {' | '.join(cells)} | {ratio} | {' | '.join(rest)} |")
