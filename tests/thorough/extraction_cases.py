"""Makes random models of the packages gliner and gliner2, and answers random texts with them.

Arguments: a folder for the models, a seed, and the number of texts of each model. Runs in the
environment "extraction" and prints one line of JSON: the cases of each model, in the form of
tests/goldens/extraction/expected.json.
"""

import json
import pathlib
import random
import sys

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "goldens"))

import make_bi_encoders  # noqa: E402
import make_entities  # noqa: E402
import make_extraction  # noqa: E402


def main() -> None:
    folder, seed, texts = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    rng = random.Random(seed)
    answers = {}
    for module, cases in ((make_extraction, make_extraction), (make_bi_encoders, make_extraction),
                          (make_entities, make_entities)):
        module.OUT = folder
        for name, settings in module.MODELS.items():
            model = module.make(name, settings, rng.randrange(1 << 30))
            answers[name] = [cases.draw_case(model, rng, cases.words()) for _ in range(texts)]
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
