# SPDX-License-Identifier: Apache-2.0
"""The cases whose verdict is not yet the loader's: name -> what made.compare finds."""

KNOWN = {
    "executable-stack": "wrong",
    "static-tls-1664": "undecided",
    "static-tls-1728": "undecided",
    "provider-without-versions-of-its-own-or-others": "wrong",
    "versions-of-library-not-needed": "other cause",
}
