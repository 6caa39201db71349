# SPDX-License-Identifier: Apache-2.0
"""The cases whose verdict is not, or not yet, the loader's: name -> what made.compare finds."""

KNOWN = {
    # Rejected, though this loader takes the file.
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
    # Called usable, though the loader refuses the file or ends the process.
    "provider-without-versions-of-its-own-or-others": "wrong",
    "relocation-of-unknown-kind-in-dependency": "wrong",
    "relocation-outside-in-dependency": "wrong",
    "relative-relocations-too-many-in-dependency": "wrong",
    "plt-relocation-of-unknown-kind-in-dependency": "wrong",
    "plt-relocation-of-a-symbol-outside-in-dependency": "wrong",
    "hash-table-of-no-buckets": "wrong",
    "hash-table-of-no-buckets-in-dependency": "wrong",
    "read-only-after-relocation-outside": "wrong",
    "read-only-after-relocation-outside-in-dependency": "wrong",
    "first-segment-not-readable": "wrong",
    "first-segment-not-readable-in-dependency": "wrong",
    "data-segment-not-writable-in-dependency": "wrong",
    # Too close to the limit to tell.
    "static-tls-1664": "undecided",
    "static-tls-1728": "undecided",
    # Rejected as by the loader, for another reason than the loader's first.
    "versions-of-library-not-needed": "other cause",
    "other-class-in-dependency": "other cause",
    "other-machine": "other cause",
    "version-of-a-library-not-loaded": "other cause",
    "version-of-a-library-not-loaded-in-dependency": "other cause",
}
