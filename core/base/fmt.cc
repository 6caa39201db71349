// Compiles the fmt library's implementation once. With FMT_HEADER_ONLY each file that formats would
// compile it, at three seconds each, and Debian has no static library of it.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format-inl.h>

// fmt's headers declare these two instantiations extern, but format-inl.h does not instantiate
// them.
template char fmt::detail::decimal_point_impl<char>(locale_ref);
template fmt::detail::thousands_sep_result<char> fmt::detail::thousands_sep_impl<char>(locale_ref);
