"""What the contrastive tools have in common, written out in their signatures."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from . import _read

F = TypeVar("F", bound=Callable[..., object])

_WITHIN = {  # why a method has no parameter of that name
    "kernel_cpca": "a kernel is not centred by donor. Contrast an embedding that is (tl.cpca with "
    "within=, then obsm= of its result), or give donor-centred values as a layer.",
    "pca_pp": "donor= forms pairs within donors.",
    "pca_plus": "donor= forms pairs within donors.",
    "cvae": "its networks are not told of donors. tl.cpca, tl.pcpca and tl.clvm are.",
    "significance": "donor= compares the parts of a donor with each other.",
}

_OWN_BEFORE = "layer"  # a tool's own parameters stand between those of cells and those of values


def written_out(function: F) -> F:
    """A function that takes ``**design: Unpack[Design]`` with a signature that has all of these.

    Of `Design` or a type that extends it.

    `help` and completion read them there, type checkers in `Design`; the defaults are those of
    `_read.read`. Another keyword is refused in the function's own name.
    """
    function = _without_within(function)
    signature = inspect.signature(function)
    first, *own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    if len(own) + 1 == len(signature.parameters):
        return function
    *_, rest = signature.parameters.values()
    if "Design" not in str(rest.annotation):
        return function
    taken = _read.Design.__annotations__
    names = [name for name in inspect.signature(_read.read).parameters if name in taken]
    shared = [inspect.signature(_read.read).parameters[name] for name in names]
    place = names.index(_OWN_BEFORE)
    whole = signature.replace(parameters=[first, *shared[:place], *own, *shared[place:]])

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> object:
        if "within" in kwargs and function.__name__ in _WITHIN:
            return function(*args, **kwargs)  # which says why not
        try:
            whole.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{function.__name__}() {error}") from None
        return function(*args, **kwargs)

    cast("Any", checked).__signature__ = whole
    return cast("F", checked)


def _without_within(function: F) -> F:
    """Answer `within=` where there is something better to say than that it is unknown."""
    reason = _WITHIN.get(function.__name__)
    if reason is None:
        return function

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> object:
        if "within" in kwargs:
            raise TypeError(f"{function.__name__}() has no within=: {reason}")
        return function(*args, **kwargs)

    return cast("F", checked)
