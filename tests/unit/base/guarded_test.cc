// Tests what a C function returns when something is thrown inside it.
// SPDX-License-Identifier: Apache-2.0
#include "base/guarded.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <new>
#include <stdexcept>

#include "opdock/types.hpp"

namespace opdock {
namespace {

struct Answer {
  opdock_status status;
  std::string text;
};

Answer answer_of(const std::function<opdock_status()>& body) {
  std::array<char, 128> text{};
  const opdock_status status = guarded({text.data(), text.size()}, body);
  return {status, text.data()};
}

TEST(Guarded, NothingThrownIsTheBodysOwnStatus) {
  const Answer fine = answer_of([] { return OPDOCK_OK; });
  EXPECT_EQ(fine.status, OPDOCK_OK);
  EXPECT_EQ(fine.text, "");
}

TEST(Guarded, AnExceptionIsAStatusAndAText) {
  const Answer memory = answer_of([]() -> opdock_status { throw std::bad_alloc(); });
  EXPECT_EQ(memory.status, OPDOCK_OUT_OF_MEMORY);
  EXPECT_EQ(memory.text, "no host memory is left; free some and try again");
  const Answer own = answer_of([]() -> opdock_status { throw Error(OPDOCK_NOT_FOUND, "no op"); });
  EXPECT_EQ(own.status, OPDOCK_NOT_FOUND);
  EXPECT_EQ(own.text, "no op");
  const Answer other = answer_of([]() -> opdock_status { throw std::out_of_range("at 7"); });
  EXPECT_EQ(other.status, OPDOCK_INTERNAL);
  EXPECT_EQ(other.text, "at 7");
  const Answer unknown = answer_of([]() -> opdock_status { throw 7; });
  EXPECT_EQ(unknown.status, OPDOCK_INTERNAL);
  EXPECT_NE(unknown.text.find("of a type unknown here"), unknown.text.npos) << unknown.text;
}

TEST(Guarded, ABodyMayReturnATextOfItsOwn) {
  std::array<char, 16> text{};
  const auto fails = [] { return Status{OPDOCK_UNSUPPORTED, "so it is"}; };
  EXPECT_EQ(guarded({text.data(), text.size()}, fails), OPDOCK_UNSUPPORTED);
  EXPECT_STREQ(text.data(), "so it is");
  EXPECT_EQ(guarded({}, fails), OPDOCK_UNSUPPORTED);  // without a buffer for the text
}

}  // namespace
}  // namespace opdock
