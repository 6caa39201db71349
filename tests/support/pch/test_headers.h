// Headers that nearly all test programs include, to be compiled once for all of them
// (tests/meson.build). GCC warns of `#pragma once` in a header that it compiles by itself.
// SPDX-License-Identifier: Apache-2.0
#if defined(__cplusplus) && !defined(TEST_HEADERS_H)
#define TEST_HEADERS_H
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>
#endif
