// Meson compiles headers ahead only for a target that has a source.
// SPDX-License-Identifier: Apache-2.0
