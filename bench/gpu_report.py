#!/usr/bin/env python3
"""The tables of a folder that bench/gpu.sh filled, as markdown on stdout. Usage: gpu_report.py OUT"""
import glob
import itertools
import json
import math
import os
import statistics
import sys


def load(path):
    with open(path) as file:
        return json.load(file)


def geomean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def key(row):
    return (row["name"], json.dumps(row["problem"], sort_keys=True))


def shape(problem):
    return f"{problem['m']}x{problem['n']}x{problem['k']}"


def tunes(out):
    print("| suite | problems | winner | refused | failed | median s | longest s | first pick slower: > 2 % | > 5 % | most | geomean |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    seconds, reasons = [], {}
    for path in sorted(glob.glob(f"{out}/tune-*.json")):
        problems = load(path)["problems"]
        won = [p for p in problems if p["winner"]]
        failed = [p for p in problems if not p["winner"] and any(c["status"] in ("failed", "wrong") for c in p["candidates"])]
        took = [p["first_tune_seconds"] for p in won]
        seconds += took
        lead = [p["default"]["time_us"] / p["winner"]["time_us"] for p in won if p["default"] and p["default"]["time_us"]]
        for problem in problems:
            for reason in {c["reason"] for c in problem["candidates"] if c["status"] == "refused"}:
                reasons[reason] = reasons.get(reason, 0) + 1
        print(f"| {os.path.basename(path)[5:-5]} | {len(problems)} | {len(won)} | {len(problems) - len(won) - len(failed)} | {len(failed)} | "
              f"{statistics.median(took) if took else 0:.2f} | {max(took, default=0):.2f} | {sum(r > 1.02 for r in lead)} | {sum(r > 1.05 for r in lead)} | "
              f"{max(lead, default=1):.2f} | {geomean(lead):.3f} |")
    if seconds:
        print(f"\nMedian of all {len(seconds)} tunes: {statistics.median(seconds):.2f} s.\n")
    for reason, count in sorted(reasons.items(), key=lambda item: -item[1]):
        print(f"- {count} problems refused: {reason}")


def bursts(out, name, title):
    rows = {run: {} for run in ("1", "2", "3")}
    for run, found in rows.items():
        for path in sorted(glob.glob(f"{out}/{name}-{run}-*.json")):
            for row in load(path)["rows"]:
                if row["ratio"] is not None:
                    found[key(row)] = row
    for run, found in rows.items():
        if found:
            ratios = [row["ratio"] for row in found.values()]
            print(f"\n{title}, run {run}: {len(ratios)} problems, winner against first pick: geometric mean {geomean(ratios):.4f}, lowest {min(ratios):.3f}, highest {max(ratios):.3f}.")
    spread, runs = [], [run for run in rows if rows[run]]
    for first, second in itertools.combinations(runs, 2):
        for name in rows[first].keys() & rows[second].keys():
            one, two = rows[first][name], rows[second][name]
            for side in ("ours",) if one["same"] else ("ours", "theirs"):
                if one[side] == two[side] and one[side + "_us"] and two[side + "_us"]:
                    spread.append((abs(one[side + "_us"] / two[side + "_us"] - 1), name[0], one["problem"], one[side + "_us"], two[side + "_us"]))
    if spread:
        spread.sort(key=lambda item: item[0], reverse=True)
        print(f"\nPairs of {len(runs)} runs of the same measurement, {len(spread)} candidates: they differ by {100 * statistics.median(s[0] for s in spread):.2f} % (median), "
              f"{100 * spread[0][0]:.2f} % at most; {sum(s[0] > 0.05 for s in spread)} by more than 5 %.")
        for difference, name, problem, one, two in spread[:8]:
            print(f"- {name} {shape(problem)}: {one:.2f} and {two:.2f} us, {100 * difference:.1f} %")


def steady(out):
    paths = sorted(glob.glob(f"{out}/steady-*.json"), key=lambda path: int(path.split("-")[-1][:-5]))
    if not paths:
        return
    print("\n| shape | burst us | steady us | TFLOP/s | MHz | W | mJ a run | first pick, steady | ratio |")
    print("|---|---|---|---|---|---|---|---|---|")
    for path in paths:
        for row in load(path)["rows"]:
            if row["ratio_steady"] is None:
                continue
            problem, ours, theirs = row["problem"], row["ours_steady"], row["theirs_steady"]
            flops = 2 * problem["m"] * problem["n"] * problem["k"] * problem.get("batch", 1)
            burst = f"{row['ours_us']:.1f}" if row["ours_us"] else "same"
            print(f"| {row['name']} {shape(problem)} | {burst} | {ours['time_us']:.1f} | {flops / ours['time_us'] * 1e-6:.0f} | {ours['clock_mhz']:.0f} | "
                  f"{ours['watts']:.0f} | {1e3 * ours['joules']:.2f} | {theirs['time_us']:.1f} us | {row['ratio_steady']:.3f} |")


def main():
    out = sys.argv[1]
    tuned = sorted(glob.glob(f"{out}/tune-*.json"))
    if tuned:
        device = load(tuned[0])["device"]
        print(f"{device['name']}, driver {device.get('driver')}, up to {device.get('max_clock_mhz'):.0f} MHz, {device.get('power_limit_w'):.0f} W\n")
    tunes(out)
    bursts(out, "burst", "All")
    bursts(out, "large", "m >= 2048")
    steady(out)


main()
