import threading
from contextlib import suppress

import torch

from equipoise.core import Request
from equipoise.kit.language.tiny import tiny_model
from equipoise.kit.torch.tokens import current_mask, token_mask


def test_masks_nest_and_are_put_back() -> None:
    outer, inner = torch.ones(1, 2, dtype=torch.bool), torch.zeros(1, 2, dtype=torch.bool)
    with token_mask(outer):
        with suppress(RuntimeError), token_mask(inner):
            assert current_mask() is inner
            raise RuntimeError
        assert current_mask() is outer
    assert current_mask() is None


def test_threads_have_their_own() -> None:
    seen = []
    with token_mask(torch.ones(1, 1, dtype=torch.bool)):
        thread = threading.Thread(target=lambda: seen.append(current_mask()))
        thread.start()
        thread.join()
    assert seen == [None]


def test_a_language_model_tells_real_tokens_in_every_pass() -> None:
    model = tiny_model()
    model.log_likelihood([("a", "bc")])
    fed: list[tuple[torch.Tensor, torch.Tensor | None]] = []

    def note(module: torch.nn.Module, args: tuple[torch.Tensor], output: object) -> None:
        mask = current_mask()
        assert mask is None or mask.shape == args[0].shape
        fed.append((args[0], mask))

    model.module.model.embed_tokens.register_forward_hook(note)

    def real() -> list[list[int]]:
        found = []
        for ids, mask in fed:
            for place, row in enumerate(ids):
                found.append(row[mask[place]].tolist() if mask is not None else row.tolist())
        fed.clear()
        return sorted(found)

    model.embed(["ab", "c"])
    assert real() == sorted([[97, 98], [99]])
    model.log_likelihood([("aaaaa", "bb"), ("ccc", "dddd")])
    assert real() == sorted([[97] * 5 + [98], [99] * 3 + [100] * 3])
    options = [("aaaaaaaaa", "bb"), ("aaaaaaaaa", "cccc"), ("dddddddd", "ee"), ("dddddddd", "fff")]
    model.log_likelihood(options)
    assert real() == sorted([[97] * 9, [98], [99] * 3, [100] * 8, [101], [102] * 2])
    model.generate([Request("ab", max_tokens=1), Request("c", max_tokens=1)])
    assert real() == sorted([[97, 98], [99]])
    assert current_mask() is None
