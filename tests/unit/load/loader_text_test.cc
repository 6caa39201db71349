// Tests how the dynamic loader's messages, in glibc's wording, become advice.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "load/open.h"

namespace opdock {
namespace {

struct Row {
  const char* message;
  const char* advice;  // part of the advice
};

constexpr Row kRows[] = {
    {"libfoo.so.3: cannot open shared object file: No such file or directory", "libfoo.so.3"},
    {"/p/x.so: undefined symbol: _Z3foov", "defines _Z3foov"},
    {"/p/x.so: undefined symbol: foo, version BAR_1", "defines foo"},
    {"/lib/libc.so.6: version `GLIBC_2.99' not found (required by /p/x.so)", "GLIBC_2.99"},
    {"/p/x.so: cannot allocate memory in static TLS block", "TLS model"},
    {"/p/x.so: cannot enable executable stack as shared object requires: Invalid argument",
     "noexecstack"},
    {"/p/x.so: failed to map segment from shared object: Operation not permitted", "noexec"},
    {"/p/x.so: file too short", "copy the file again"},
    {"/p/x.so: something new", "see the loader's message"},
    {"/p/x.so: cannot open shared object file: No such file or directory",
     "see the loader's message"},
};

TEST(LoaderReason, KeepsTheMessageAndAdvises) {
  for (const Row& row : kRows) {
    const Reason reason = loader_reason(row.message, "/p/x.so");
    EXPECT_EQ(reason.code, Code::kLoadFailed);
    EXPECT_EQ(reason.found, row.message);
    EXPECT_NE(reason.advice.find(row.advice), std::string::npos) << row.message << "\n"
                                                                 << reason.advice;
  }
}

}  // namespace
}  // namespace opdock
