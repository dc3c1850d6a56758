"""Gemma 4 in this process, with the same bits in any company: the engine of libevenkeel.

    import evenkeel
    with evenkeel.Model() as model:                      # the bundled model; or Model("e2b") after pull("e2b")
        print(model.chat("Hello").text)
        for event in model.chat("Hello", stream=True):
            print(event.text, end="")

Any thread may use a model; calls run side by side. docs/LIBRARY.md and include/evenkeel.h say more.
"""
from ._library import lib as _lib
from .model import Call, EvenkeelError, Event, Generated, Model, Reply, Tokenizer, image, pull, sound

__version__: str = _lib.ek_version().decode()
__all__ = ["Call", "EvenkeelError", "Event", "Generated", "Model", "Reply", "Tokenizer", "image", "pull", "sound"]
