"""Keeps every value by name."""

from collections import defaultdict


class MetricLog:
    def __init__(self):
        self._values = defaultdict(list)

    def add(self, name, value):
        self._values[name].append(value)  # !MG101 MetricLog._values

    def mean(self, name):
        return float(sum(self._values[name])) / len(self._values[name])
