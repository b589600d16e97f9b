"""Makes the goldens of DeBERTa that make_transformers.py is too small for.

relative_rows.json has the rows of tables of relative positions: for each span and maximum distance,
`first` is the row of a key FARTHEST positions before its query, and `borders` lists the distances
of keys whose row is one lower than the row of the distance before. The folder deberta_long has a
layer with a head and with the buckets of DeBERTa-v3, and states for up to 512 tokens, in float64.

Needs torch and transformers 5.24.0 (seconds, no GPU).

  python make_deberta.py
"""

import json
from pathlib import Path

import numpy as np
import torch
from make_transformers import all_in_double, redraw
from safetensors.torch import save_file
from transformers import DebertaV2Config, DebertaV2Model
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

HERE = Path(__file__).parent
FARTHEST = 3000
SIZES = ((256, 512), (8, 40), (12, 20), (32, 128), (128, 512), (256, 2048), (6, 64))
# Around the border between buckets of one distance and of several, and the longest.
LENGTHS = (1, 127, 129, 130, 512)
SEED = 6204


def relative_rows() -> list[dict]:
    tables = []
    for span, most in SIZES:
        distances = torch.arange(-FARTHEST, FARTHEST + 1)
        buckets = make_log_bucket_position(-distances, span, most).to(torch.long)
        rows = torch.clamp(buckets + span, 0, 2 * span - 1)
        steps = rows[:-1] - rows[1:]
        assert set(steps.tolist()) == {0, 1}
        tables.append({"span": span, "max_distance": most, "first": int(rows[0]),
                       "borders": distances[1:][steps == 1].tolist()})
    return tables


def make_long(path: Path) -> None:
    """Saves a layer with the keys of microsoft/deberta-v3-small, and its states."""
    config = DebertaV2Config(
        vocab_size=41, hidden_size=64, num_hidden_layers=1, num_attention_heads=1,
        intermediate_size=32, max_position_embeddings=512, relative_attention=True,
        position_buckets=256, max_relative_positions=-1, norm_rel_ebd="layer_norm",
        share_att_key=True, pos_att_type="p2c|c2p", position_biased_input=False,
        type_vocab_size=0, layer_norm_eps=1e-7)
    rng = np.random.default_rng(SEED)
    model = DebertaV2Model._from_config(config, attn_implementation="eager").eval()
    redraw(model, rng)
    model.save_pretrained(path)
    text = json.loads((path / "config.json").read_text())
    text.pop("transformers_version")
    (path / "config.json").write_text(json.dumps(text, indent=2, sort_keys=True) + "\n")
    expected: dict[str, list] = {"input_ids": [], "states": []}
    with all_in_double("deberta_v2"):
        double = DebertaV2Model._from_config(config, attn_implementation="eager").double().eval()
        double.load_state_dict(model.state_dict())
        for length in LENGTHS:
            ids = torch.from_numpy(rng.integers(5, config.vocab_size, length))
            expected["input_ids"].append(ids)
            expected["states"].append(double(ids[None]).last_hidden_state[0])
    save_file({"lengths": torch.tensor(LENGTHS, dtype=torch.int32),
               "input_ids": torch.cat(expected["input_ids"]).to(torch.int32),
               "states": torch.cat(expected["states"]).to(torch.float32)},
              path / "expected.safetensors")


def main() -> None:
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    (HERE / "relative_rows.json").write_text(
        json.dumps({"farthest": FARTHEST, "tables": relative_rows()}) + "\n")
    make_long(HERE / "deberta_long")


if __name__ == "__main__":
    main()
