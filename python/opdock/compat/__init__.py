# SPDX-License-Identifier: Apache-2.0
"""Other systems' interfaces, implemented by Opdock. Each subpackage is imported only on request."""
