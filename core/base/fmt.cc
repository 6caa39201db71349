// fmt's implementation, compiled once: with FMT_HEADER_ONLY each file that formats compiles it, at
// three seconds each, and Debian has no static library of it.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format-inl.h>

// Declared in its headers as extern, and not a member of the file above.
template char fmt::detail::decimal_point_impl<char>(locale_ref);
template fmt::detail::thousands_sep_result<char> fmt::detail::thousands_sep_impl<char>(locale_ref);
