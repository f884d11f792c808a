"""One line of share.sh's W6: restart.py LABEL TOTAL START_MS BEFORE AFTER.

BEFORE ended with the server's death while records were open, AFTER read on to the end. All
acknowledgements of BEFORE were confirmed: what AFTER got beyond the rest of the topic was
acknowledged before, what it did not get is lost.
"""
import json
import sys

label, total, start, before, after = sys.argv[1:]
before, after = (json.loads(open(f).readlines()[-1]) for f in (before, after))
left = int(total) - before["acked"]
print(json.dumps({
    "w": "restart", "label": label, "err": before.get("err") or after.get("err"), "acked": before["acked"], "open": before["open_end"],
    "first_s": (after["first_unix_ms"] - int(start)) / 1000, "again": max(after["n"] - left, 0), "lost": max(left - after["n"], 0),
    "load1": after["load1"],
}))
