"""The one exception a user's mistake raises."""


class MaqeeError(Exception):
    """Something about the user's input is wrong.

    The message is one sentence that names the input and says what to do. The command line prints it without a
    traceback and exits with code 2; library users can catch it.
    """


def suggest(name: str, known: list[str], kind: str) -> MaqeeError:
    """Build the error for an unknown name, with the closest known names or, failing that, all of them."""
    import difflib

    def likeness(other: str) -> float:
        return difflib.SequenceMatcher(None, name, other).ratio()

    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    close = [other for other in close if likeness(other) > likeness(close[0]) - 0.3]  # beside `epochs` no `teacher`
    hint = f"did you mean {' or '.join(close)}?" if close else f"choose one of {', '.join(sorted(known))}."
    return MaqeeError(f"Unknown {kind} {name!r}: {hint}")


def is_gpu_out_of_memory(error: BaseException) -> bool:
    """Whether PyTorch found too little memory on a GPU; asked by name, so that nothing has to be imported for it."""
    kind = type(error)
    return kind.__name__ == "OutOfMemoryError" and kind.__module__.partition(".")[0] == "torch"
