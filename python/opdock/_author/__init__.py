# SPDX-License-Identifier: Apache-2.0
"""Tools for authors of plugins: the code that `opdock test` and `opdock bench` run, and the
implementation of opdock.testing. A program that only calls ops never imports this.
"""
