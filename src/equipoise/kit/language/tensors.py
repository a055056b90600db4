"""A module's tensors in a safetensors file, and back into its structure."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

from equipoise.core import UsageError


def save_tensors(module: nn.Module, path: Path) -> None:
    """Write a module's parameters and buffers, tied ones once."""
    from safetensors.torch import save_file

    # Metadata of one key, because safetensors writes several in no fixed order.
    save_file(_distinct(module), str(path), metadata={"format": "pt"})


def fill_tensors(module: nn.Module, path: Path, name: str = "the model") -> None:
    """Put the tensors of a file into a module's structure.

    Tensors are replaced, not written into, so that a control which shares
    them keeps its own. Meant for skeletons that no one else uses.

    Parameters
    ----------
    module
        Changed in place.
    path
        As `save_tensors` wrote it.
    name
        What messages call the module.

    Raises
    ------
    UsageError
        If there is no such file, or it is damaged or of another module.
    """
    tensors = _read(path)
    for key, parameter in module.named_parameters():
        if key in tensors:
            tensors[key] = nn.Parameter(tensors[key], requires_grad=parameter.requires_grad)
    for key, kept in _ties(module).items():
        if kept in tensors:
            tensors[key] = tensors[kept]
    try:
        module.load_state_dict(tensors, strict=True, assign=True)
    except RuntimeError as error:
        raise UsageError(
            f"{path}: the tensors do not fit {name}; delete the file to make it again."
        ) from error


def _read(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except FileNotFoundError as error:
        raise UsageError(f"{path}: there is no such file.") from error
    except SafetensorError as error:
        raise UsageError(f"{path}: not whole; delete it to make it again.") from error


def _ties(module: nn.Module) -> dict[str, str]:
    """Return names whose tensor an earlier name has as well, with that name."""
    first: dict[int, str] = {}
    found = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        kept = first.setdefault(id(tensor), name)
        if kept != name:
            found[name] = kept
    return found


def _distinct(module: nn.Module) -> dict[str, Tensor]:
    """Return the module's tensors, tied ones once, in a form that safetensors takes."""
    ties = _ties(module)
    stores: set[int] = set()
    found = {}
    for name, tensor in module.state_dict().items():
        if name in ties:
            continue
        tensor = tensor.contiguous()
        store = tensor.untyped_storage().data_ptr()
        found[name] = tensor.clone() if store in stores else tensor
        stores.add(store)
    return found
