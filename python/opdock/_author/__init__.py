# SPDX-License-Identifier: Apache-2.0
"""For authors of plugins: what `opdock test` and `opdock bench` run, and what stands behind
opdock.testing. A program that only calls ops never imports this.
"""
