"""Random sets of requests: lifetimes, sizes, slots."""

from eggshard.engines.workspace.requests import Lifetime, Request


def random_requests(rng, most=16):
    """Up to ``most`` requests over a short or a long time."""
    horizon, scale = rng.choice((6, 12, 30)), rng.choice((200, 2000, 20000))
    out = []
    for i in range(rng.randint(2, most)):
        first = rng.randrange(horizon)
        life = Lifetime(first, min(horizon, first + int(rng.expovariate(1 / rng.choice((2, 6, 12))))))
        if rng.random() < 0.05:
            life = Lifetime(0, horizon)
        out.append(Request(f"r{i}", rng.randint(0, scale), life, slots=rng.choice((1, 1, 1, 2, 3))))
    return out
