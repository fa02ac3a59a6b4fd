"""Guess the type of a file that is not a `.pte` file: many loading errors are caused by the wrong file."""

_BY_START = (
    (b"PK\x03\x04", "a zip archive (a .pt, .pt2 or .pth file?): export it to .pte first"),
    (b"\x80\x02", "a pickle (an old torch.save file?): export it to .pte first"),
    (b"\x80\x04", "a pickle: export it to .pte first"),
    (
        b"GGUF",
        "a GGUF model: `pteron chat`, `generate` and `serve` take it, `pteron convert` makes a .pte of it",
    ),
    (b"\x7fELF", "an ELF binary"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself: run `git lfs pull`"),
    (b"<!DOCTYPE", "an HTML page: the download failed"),
    (b"<html", "an HTML page: the download failed"),
)

_BY_IDENTIFIER = (
    (b"ET12", "an ExecuTorch program (.pte)"),
    (b"ET", "an ExecuTorch program of another version"),
    (b"FT01", "an ExecuTorch data file (.ptd): pass it as data_path= beside its .pte"),
    (b"VH00", "a bare Vulkan delegate, without the program around it"),
    (b"VK00", "a bare Vulkan graph, without the program around it"),
)


def looks_like(data: memoryview) -> str:
    """A description of the file type, guessed from the first bytes."""
    head = bytes(data[:32])
    if not head:
        return "an empty file"
    for start, guess in _BY_START:
        if head.startswith(start):
            return guess
    for identifier, guess in _BY_IDENTIFIER:
        if head[4:].startswith(identifier):
            return guess
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 2**32:
        return "a safetensors file: it holds weights, but no program"
    return f"no file that Pteron knows: it begins with {head[:8]!r}"
