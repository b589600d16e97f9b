"""Functions of models/recommender and models/ranker: sequences of items, training, a report.

Sequences follow a rule: a user has a step s. The next item is mostly the item before last plus s,
and otherwise a popular item.
"""

import argparse
import pathlib

import torch

ITEMS = 201  # item 0 is padding
HABITS = (1, 3, 7, 12)
TOP = 10
HELD_OUT = 300


def sequence(draw, length):
    step = draw.choice(HABITS)
    items = [draw.randrange(1, ITEMS) for _ in range(2)]
    while len(items) < length:
        follows = (items[-2] - 1 + step) % (ITEMS - 1) + 1
        popular = 1 + int((ITEMS - 1) * draw.random() ** 3)
        items.append(follows if draw.random() < 0.85 else popular)
    return items


def sequences(draw, count):
    return [sequence(draw, draw.randint(8, 26)) for _ in range(count)]


def popular_items(of):
    counts = torch.bincount(torch.tensor([item for items in of for item in items]),
                            minlength=ITEMS)
    return counts.topk(TOP).indices.tolist()


def arguments(description, steps, out):
    """Parses the command line, and makes PyTorch deterministic."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--out", type=pathlib.Path, default=out)
    torch.manual_seed(1)
    torch.set_num_threads(1)  # more are not faster for such small matrices
    return parser.parse_args()


def minimise(model, loss_of_batch, steps, weight_decay):
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, total_steps=steps)
    for step in range(steps):
        loss = loss_of_batch()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0 or step == steps - 1:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)


def report(draw, hit_rate, trained_on):
    """Returns new histories, the items that followed, and two hit rates in the first ten: the
    model's, hit_rate(histories, followed), and that for the most popular items."""
    held_out = [sequence(draw, draw.randint(5, 24)) for _ in range(HELD_OUT)]
    histories, followed = [items[:-1] for items in held_out], [items[-1] for items in held_out]
    popular = popular_items(trained_on)
    result = {"histories": histories, "followed": followed, "popular": popular,
              "hit_rate": hit_rate(histories, followed),
              "popularity_hit_rate": sum(item in popular for item in followed) / len(followed)}
    print({key: value for key, value in result.items() if key.endswith("rate")})
    return result
