"""Random sets of requests: lifetimes, alignments, rings, slots and lanes, constant and symbolic sizes."""

from eggshard.engines.workspace.requests import Request
from eggshard.engines.workspace.sizes import symbol

SYMBOLS = ("n", "m", "k")


def random_requests(rng, most=16, symbolic=0.3):
    """Up to ``most`` requests over a short or a long time; a part of them symbolic."""
    horizon, scale = rng.choice((6, 12, 30)), rng.choice((200, 2000, 20000))
    out = []
    for i in range(rng.randint(2, most)):
        first = rng.randrange(horizon)
        life = (first, min(horizon, first + int(rng.expovariate(1 / rng.choice((2, 6, 12))))))
        size = rng.randint(0, scale)
        if rng.random() < symbolic:
            size = symbol(rng.choice("nm")) * rng.choice((1, 4, 12)) + rng.choice((0, 3, 64))
        out.append(Request.make(
            f"r{i}", size, None if rng.random() < 0.05 else life,
            alignment=rng.choice((1, 4, 16, 64, 64, 64, 128, 256)),
            slots=rng.choice((1, 1, 1, 2, "k" if rng.random() < symbolic else 3)), rings=rng.choice((1, 1, 1, 2)),
        ))
    return out


def random_symbols(rng):
    return {"n": rng.randint(0, 5000), "m": rng.randint(1, 5000), "k": rng.randint(1, 4)}
