"""Makes relative_rows.json: the rows of DeBERTa's tables of relative positions in transformers.

For each span and maximum distance, `first` is the row of a key FARTHEST positions before its query.
`borders` lists the distances of keys whose row is one lower than the row of the distance before.

  python make_relative_rows.py
"""

import json
from pathlib import Path

import torch
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

FARTHEST = 3000
SIZES = ((256, 512), (8, 40), (12, 20), (32, 128), (128, 512), (256, 2048), (6, 64))


def main() -> None:
    tables = []
    for span, most in SIZES:
        distances = torch.arange(-FARTHEST, FARTHEST + 1)
        buckets = make_log_bucket_position(-distances, span, most).to(torch.long)
        rows = torch.clamp(buckets + span, 0, 2 * span - 1)
        steps = rows[:-1] - rows[1:]
        assert set(steps.tolist()) == {0, 1}
        tables.append({"span": span, "max_distance": most, "first": int(rows[0]),
                       "borders": distances[1:][steps == 1].tolist()})
    path = Path(__file__).parent / "relative_rows.json"
    path.write_text(json.dumps({"farthest": FARTHEST, "tables": tables}) + "\n")


if __name__ == "__main__":
    main()
