# SPDX-License-Identifier: Apache-2.0
from opdock.cli import main

main()
