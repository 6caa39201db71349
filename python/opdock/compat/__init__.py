# SPDX-License-Identifier: Apache-2.0
"""Other systems' interfaces, answered by Opdock. Nothing is imported before it is asked for."""
