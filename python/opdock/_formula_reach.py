# SPDX-License-Identifier: Apache-2.0
"""Tells which elements of its tensors an element of a formula's results is computed from.

It reads the formula's text. A function that is not listed here counts as one that sees more than
the others, so that a new one is refused where it would be wrong, and never taken for elementwise.
"""

import re

#: An element of a result depends on the elements at the same place, those of the same row, others.
ELEMENT, ROW, OTHERS = range(3)

_ELEMENTWISE = """
    abs acos acosh add asin asinh atan atan2 atanh bfloat16 bitwise_and bitwise_left_shift
    bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil clamp clamp_max clamp_min copysign
    cos cosh detach div double eq erf erfc exp exp2 expm1 float floor floor_divide fma fmod ge gelu
    gelu_tanh gt half hypot isfinite isinf isnan le lerp log log10 log1p log2 logaddexp logical_and
    logical_not logical_or logical_xor lt maximum minimum mul ne neg pow reciprocal relu remainder
    round rsqrt sigmoid sign signbit silu sin sinh softplus sqrt square sub tan tanh to trunc where
"""
# max() and min() of two arguments are elementwise; here they count as those of a row.
_ALONG_ROWS = """
    all amax amin any argmax argmin cat chunk column columns log_softmax logsumexp max mean min prod
    softmax sum var
"""
_OF_ELEMENTS = frozenset(_ELEMENTWISE.split())
_OF_ROWS = frozenset(_ALONG_ROWS.split())
_CALL = re.compile(r"([A-Za-z_]\w*)\s*\(")
_STRING_OR_COMMENT = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'|#[^\n]*")
_KEYWORDS = frozenset(("and", "else", "if", "not", "or", "return"))  # a parenthesis may follow


def reach(text):
    """Returns ELEMENT, ROW or OTHERS for a formula's text."""
    names = set(_CALL.findall(_STRING_OR_COMMENT.sub('""', text))) - _KEYWORDS
    if names <= _OF_ELEMENTS:
        return ELEMENT
    return ROW if names <= _OF_ELEMENTS | _OF_ROWS else OTHERS
