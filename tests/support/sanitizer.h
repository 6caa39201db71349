// Detects which sanitizer the program is built with; g++ and clang announce it differently.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__SANITIZE_THREAD__)
#define OPDOCK_TEST_TSAN 1
#endif
#if defined(__SANITIZE_ADDRESS__)
#define OPDOCK_TEST_ASAN 1
#endif
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define OPDOCK_TEST_TSAN 1
#endif
#if __has_feature(address_sanitizer)
#define OPDOCK_TEST_ASAN 1
#endif
#endif
