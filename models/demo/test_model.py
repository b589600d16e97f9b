#!/usr/bin/env python3
"""Compares the model with transformers' Llama, and the two operators with their definitions."""

import tempfile
import unittest
from pathlib import Path

import torch
from transformers import LlamaForCausalLM

from model import PositionWiseLinear, exclude_self, load, make_config, save
from train import ANCHORS, make_model


class ModelTest(unittest.TestCase):
    def test_without_our_operators_it_is_llama(self):
        model = make_model(make_config(xsa=False, position_wise=False), seed=3)
        tokens = torch.randint(0, 258, (2, 256), generator=torch.Generator().manual_seed(3))
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            save(model, Path(folder))
            llama = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
            torch.testing.assert_close(load(Path(folder))(tokens), llama(tokens).logits,
                                       rtol=1e-4, atol=1e-5)

    def test_saved_position_weights_are_shared_plus_interpolated(self):
        model = make_model(make_config(), seed=4)
        trained = model.model.layers[0].self_attn.v_proj
        torch.nn.init.normal_(trained.delta, std=0.05)
        with tempfile.TemporaryDirectory() as folder:
            save(model, Path(folder))
            again = load(Path(folder))
        saved = again.model.layers[0].self_attn.v_proj.position_weight
        torch.testing.assert_close(saved, trained.position_weight.bfloat16().float())
        for index, anchor in enumerate(ANCHORS):
            torch.testing.assert_close(trained.position_weight[anchor],
                                       trained.weight.T + trained.delta[index])
        torch.testing.assert_close(trained.position_weight[14] * 2,
                                   trained.position_weight[12] + trained.position_weight[16])

    def test_position_wise_is_the_einsum(self):
        layer = PositionWiseLinear(8, 6, 4)
        w, x = torch.randn(8, 6, 4), torch.randn(3, 5, 6)
        layer.position_weight.data = w
        torch.testing.assert_close(layer(x), torch.einsum("bld,lde->ble", x, w[:5]))

    def test_exclude_self_leaves_nothing_along_v(self):
        y, v = torch.randn(2, 6, 5, 8).double(), torch.randn(2, 2, 5, 8).double()
        z = exclude_self(y, v, 1e-6)
        for head in range(6):
            own = v[:, head // 3]
            along = (z[:, head] * own).sum(-1)
            torch.testing.assert_close(along, torch.zeros_like(along))
            unit = own / own.norm(dim=-1, keepdim=True)
            removed = (y[:, head] * unit).sum(-1, keepdim=True) * unit
            torch.testing.assert_close(z[:, head] + removed, y[:, head])


if __name__ == "__main__":
    unittest.main()
