"""Rates and sizes as people write them."""

import re

_RATE_UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_SIZE_UNITS = {"": 1, "b": 1, "kb": 1024, "mb": 1024**2}

MIN_RATE_BITS = 10**5
MAX_RATE_BITS = 10**11


def parse_rate(text):
    """Return the bits per second that `text` ("1gbit", "2.5gbit", "800kbit") names."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([a-z]+)", text.strip().lower())
    if not match or match.group(2) not in _RATE_UNITS:
        raise ValueError(f"'{text}' is no rate; allowed: a number and one of bit, kbit, mbit, gbit, such as 100mbit")
    bits = round(float(match.group(1)) * _RATE_UNITS[match.group(2)])
    if not MIN_RATE_BITS <= bits <= MAX_RATE_BITS:
        raise ValueError(f"'{text}' is out of range; allowed: 100kbit to 100gbit")
    return bits


def parse_size(text):
    """Return the bytes that `text` ("20kB", "8MB", "4096") names; k and M are powers of 1024."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([a-z]*)", text.strip().lower())
    if not match or match.group(2) not in _SIZE_UNITS:
        raise ValueError(f"'{text}' is no size; allowed: bytes, or a number and kB or MB, such as 16kB")
    return round(float(match.group(1)) * _SIZE_UNITS[match.group(2)])


def format_rate(bits):
    """Return `bits` per second in the largest unit that keeps it short: 1gbit, 2.5gbit, 100mbit."""
    for unit in ("gbit", "mbit", "kbit"):
        if bits >= _RATE_UNITS[unit]:
            return f"{bits / _RATE_UNITS[unit]:.6g}{unit}"
    return f"{bits}bit"
