# SPDX-License-Identifier: Apache-2.0
"""Small libraries, each with one defect (or none): name -> builder of the file that is asked about.

A builder takes a Box and returns the path to open. What happens then is not written here: the
loader of this machine says it.
"""

import shutil

from made_damage import CASES as DAMAGE
from made_search import CASES as SEARCH
from made_symbols import CASES as SYMBOLS
from made_versions import CASES as VERSIONS

CASES = {**SYMBOLS, **VERSIONS, **SEARCH, **DAMAGE}
