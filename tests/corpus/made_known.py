# SPDX-License-Identifier: Apache-2.0
"""The cases whose answer is not "right": name -> what made.compare finds, with the reason."""

# Refused on purpose, though the loader of this machine gets by (docs/reference/verdicts.md).
POLICY = {
    "executable-stack": "wrong",
    "cut-within-the-last-page": "wrong",
    "cut-within-the-last-page-in-dependency": "wrong",
    "alignment-of-3-pages": "wrong",
    "alignment-of-3-pages-in-dependency": "wrong",
    "file-larger-than-memory": "wrong",
    "file-larger-than-memory-in-dependency": "wrong",
    "symbols-of-32-bytes": "wrong",
    "symbols-of-32-bytes-in-dependency": "wrong",
    "string-table-size-0": "wrong",
    "string-table-size-0-in-dependency": "wrong",
    # The index is beyond the file's versions: here it reads memory that happens to hold zeros.
    "symbol-of-a-version-that-is-not-there": "wrong",
    "symbol-of-a-version-that-is-not-there-in-dependency": "wrong",
}
# The size is within 64 bytes of the remaining space.
CLOSE = {"static-tls-1664": "undecided", "static-tls-1728": "undecided"}
# The loader stops at an assertion, or names the same cause in other words.
WORDS = {
    "provider-without-versions-of-its-own-or-others": "other cause",
    "versions-of-library-not-needed": "other cause",
    "version-of-a-library-not-loaded": "other cause",
    "version-of-a-library-not-loaded-in-dependency": "other cause",
    "other-class-in-dependency": "other cause",
    "hash-table-of-no-buckets": "other cause",
    "hash-table-of-no-buckets-in-dependency": "other cause",
}
KNOWN = {**POLICY, **CLOSE, **WORDS}
