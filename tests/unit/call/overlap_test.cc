// Tests the detection of overlapping memory against a reference that lists every byte.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <bitset>
#include <random>

#include "call/memory_conflict.h"
#include "support.h"

namespace opdock {
namespace {

using namespace testing_support;
using A = Arguments;
using views::Overlap;

constexpr size_t kBytes = 8192;
using Bytes = std::bitset<kBytes>;

constexpr opdock_dtype kDtypes[] = {
    {OPDOCK_DTYPE_INT, 8, 1}, {OPDOCK_DTYPE_FLOAT, 16, 1}, kF32, kF64};

// A strided view into a buffer of kBytes.
struct Strided {
  std::vector<int64_t> shape, strides;
  opdock_dtype dtype = kF32;
  int64_t first = 0;  // byte offset of the first element

  int64_t element() const { return dtype.bits / 8; }
  opdock_tensor tensor(std::vector<char>& buffer) {
    return {buffer.data(), kCpu,           static_cast<int32_t>(shape.size()), dtype,
            shape.data(),  strides.data(), static_cast<uint64_t>(first)};
  }
  // Returns every byte of every element. *twice: whether two elements share an address.
  Bytes bytes(bool* twice) const {
    std::vector<int64_t> addresses{first};
    for (size_t i = 0; i < shape.size(); ++i) {
      std::vector<int64_t> more;
      for (const int64_t address : addresses) {
        for (int64_t k = 0; k < shape[i]; ++k) more.push_back(address + k * strides[i] * element());
      }
      addresses = more;
    }
    std::sort(addresses.begin(), addresses.end());
    *twice = std::adjacent_find(addresses.begin(), addresses.end()) != addresses.end();
    Bytes set;
    for (const int64_t address : addresses) {
      for (int64_t b = 0; b < element(); ++b) set.set(static_cast<size_t>(address + b));
    }
    return set;
  }
};

class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {}
  int64_t pick(std::initializer_list<int64_t> from) { return from.begin()[below(from.size())]; }
  size_t below(size_t n) { return random_() % n; }
  Strided view(bool one_dtype) {
    Strided v;
    const size_t ndim = below(4);
    for (size_t i = 0; i < ndim; ++i) {
      v.shape.push_back(below(8) == 0 ? pick({0, 1, 2, 3, 4}) : pick({1, 2, 3, 4}));
      v.strides.push_back(pick({-24, -12, -7, -6, -3, -1, 0, 1, 2, 3, 4, 5, 6, 8, 12, 24}));
    }
    v.dtype = one_dtype ? kF32 : kDtypes[below(4)];
    const int64_t grain = one_dtype ? v.element() : 1;
    v.first = (int64_t{kBytes} / 2 / grain + static_cast<int64_t>(below(61)) - 30) * grain;
    return v;
  }

 private:
  std::mt19937 random_;
};

const opdock_op* rope_op() {
  static const opdock_op op = make_op("rope_(Tensor(a!) q, Tensor k) -> Tensor(a!)");
  return &op;
}

// A call must be refused if, and only if, it shares memory. Half of the rounds use views of one
// dtype at whole elements, the others use several dtypes at any byte.
TEST(Overlap, TwoHundredThousandRandomPairsAreDecidedExactly) {
  TestFunction f(rope_op());
  std::vector<char> buffer(kBytes);
  Generator random(1);
  int apart = 0, shared = 0, unsafe = 0, falsely = 0;
  for (int round = 0; round < 200000; ++round) {
    Strided a = random.view(round % 2 == 0), b = random.view(round % 2 == 0);
    const opdock_tensor q = a.tensor(buffer), k = b.tensor(buffer);
    bool twice = false, ignored = false;
    const Bytes in_q = a.bytes(&twice), in_k = b.bytes(&ignored);
    const bool wrong = twice || (in_q & in_k).any();
    const opdock_status status = f.invoke({A::value(&q), A::value(&k)});
    ASSERT_TRUE(status == OPDOCK_OK || status == OPDOCK_INVALID_ARGUMENT) << f.error;
    ++(wrong ? shared : apart);
    unsafe += wrong && status == OPDOCK_OK;
    falsely += !wrong && status != OPDOCK_OK;
    ASSERT_EQ(status != OPDOCK_OK, wrong)
        << "round " << round << ": " << f.error << " strides "
        << ::testing::PrintToString(a.strides) << ::testing::PrintToString(b.strides) << " shapes "
        << ::testing::PrintToString(a.shape) << ::testing::PrintToString(b.shape) << " from "
        << a.first << " and " << b.first;
  }
  EXPECT_EQ(unsafe, 0);
  EXPECT_EQ(falsely, 0);
  EXPECT_GT(apart, 50000);  // both answers are frequent
  EXPECT_GT(shared, 50000);
}

// Lists long enough to be sorted: a conflict is found if, and only if, some pair conflicts.
TEST(Overlap, RandomListsAreDecidedExactly) {
  std::vector<char> buffer(kBytes);
  Generator random(2);
  int conflicts = 0, none = 0;
  for (int round = 0; round < 4000; ++round) {
    const size_t count = 2 + random.below(60);
    const int64_t row = random.pick({16, 40, 64});
    std::vector<Strided> strided(count);
    std::vector<View::Role> roles(count);
    for (size_t i = 0; i < count; ++i) {
      // Mostly rows and columns of a matrix, otherwise arbitrary views; few, so that often nothing
      // conflicts.
      strided[i] = random.view(true);
      Strided& v = strided[i];
      if (random.below(16) != 0) {
        const int64_t width = random.pick({1, 1, 2});
        v.shape = {random.pick({1, 2, 4}), width};
        v.strides = {row, 1};
        v.first = 4 * static_cast<int64_t>(random.below(static_cast<size_t>(6 * row)));
      } else {
        v.shape.assign(v.shape.size(), random.pick({0, 1, 1, 2}));
      }
      roles[i] = random.below(6) == 0 ? View::kWritten : View::kRead;
    }
    std::vector<opdock_tensor> tensors;
    std::vector<Bytes> bytes;
    bool ignored = false;
    for (Strided& v : strided) {
      tensors.push_back(v.tensor(buffer));
      bytes.push_back(v.bytes(&ignored));
    }
    std::vector<View> views;
    for (size_t i = 0; i < count; ++i) {
      const views::Extent extent = views::extent_of(tensors[i]);
      ASSERT_EQ(extent.low == extent.high, bytes[i].none());
      if (bytes[i].none()) continue;
      views.push_back({extent, &tensors[i], static_cast<uint32_t>(i), roles[i], false});
    }
    bool wanted = false;
    for (size_t i = 0; i < count; ++i) {
      for (size_t j = 0; j < i; ++j) {
        wanted = wanted || ((roles[i] | roles[j]) != View::kRead && (bytes[i] & bytes[j]).any());
      }
    }
    const std::optional<MemoryConflict> found = find_conflict(views.data(), views.size(), false);
    ASSERT_EQ(found.has_value(), wanted) << "round " << round;
    ++(wanted ? conflicts : none);
    if (!found) continue;
    EXPECT_LT(found->first, found->second);
    EXPECT_EQ(found->overlap, Overlap::kShared);
    EXPECT_TRUE((bytes[found->first] & bytes[found->second]).any());
    EXPECT_NE(roles[found->first] | roles[found->second], View::kRead);
  }
  EXPECT_GT(conflicts, 500);
  EXPECT_GT(none, 500);
}

struct Slice {
  const char* name;
  std::vector<int64_t> shape, strides;  // of both views
  int64_t first, second;                // offsets in elements from the start of the buffer
  bool apart;
};

// Slices that models commonly take of one array, in any number of dimensions.
TEST(Overlap, OrdinarySlicesAreTakenApart) {
  const Slice slices[] = {
      {"q and k of [B, S, 3H]", {2, 8, 16}, {384, 48, 1}, 0, 16, true},
      {"q and k, one column shared", {2, 8, 17}, {384, 48, 1}, 0, 16, false},
      {"q and k by heads [B, h, S, d]", {2, 4, 8, 4}, {384, 4, 48, 1}, 0, 16, true},
      {"gate and up of [B, S, 2H]", {4, 7, 16}, {224, 32, 1}, 0, 16, true},
      {"a cache [B, H, T, D], rows 0 and 5", {2, 4, 1, 8}, {1024, 256, 8, 1}, 0, 40, true},
      {"a cache [B, T, H, D], rows 0 and 5", {2, 1, 4, 8}, {1024, 32, 8, 1}, 0, 160, true},
      {"every other column", {32, 16}, {32, 2}, 0, 1, true},
      {"every other column of every other row", {16, 16}, {64, 2}, 0, 32, true},
      {"backwards columns", {32, 16}, {32, -1}, 15, 31, true},
      {"transposed halves", {16, 32}, {1, 32}, 0, 16, true},
      {"diagonals", {31}, {33}, 0, 1, true},
  };
  std::vector<float> buffer(8192);
  for (const Slice& slice : slices) {
    TestFunction f(rope_op());
    A a;
    opdock_tensor* q = a.tensor(slice.shape, kF32, slice.strides, buffer.data() + slice.first);
    opdock_tensor* k = a.tensor(slice.shape, kF32, slice.strides, buffer.data() + slice.second);
    EXPECT_EQ(f.invoke({A::value(q), A::value(k)}),
              slice.apart ? OPDOCK_OK : OPDOCK_INVALID_ARGUMENT)
        << slice.name << ": " << f.error;
  }
  // A prefix that is read, and the row after it that is written.
  TestFunction f(rope_op());
  A a;
  opdock_value row = A::value(a.tensor({2, 4, 1, 8}, kF32, {1024, 256, 8, 1}, buffer.data() + 40));
  opdock_value prefix = A::value(a.tensor({2, 4, 5, 8}, kF32, {1024, 256, 8, 1}, buffer.data()));
  EXPECT_EQ(f.invoke({row, prefix}), OPDOCK_OK) << f.error;
  prefix = A::value(a.tensor({2, 4, 6, 8}, kF32, {1024, 256, 8, 1}, buffer.data()));
  EXPECT_EQ(f.invoke({row, prefix}), OPDOCK_INVALID_ARGUMENT);
  EXPECT_STREQ(f.error,
               "rope_: argument 'q': found memory shared with argument 'k', wanted memory of its "
               "own, as the op writes it; copy one of the two");
}

// Two strides of which neither divides the other, with sizes too large for counting.
TEST(Overlap, LongProgressionsAreDecided) {
  const int64_t n = 100000000;
  char* const base = reinterpret_cast<char*>(uintptr_t{1} << 40);  // this memory is never accessed
  const auto answer = [&](int64_t a_stride, int64_t b_stride, int64_t shift) {
    int64_t size = n;
    const opdock_dtype byte{OPDOCK_DTYPE_INT, 8, 1};
    const opdock_tensor a{base, kCpu, 1, byte, &size, &a_stride, 0};
    const opdock_tensor b{base + shift, kCpu, 1, byte, &size, &b_stride, 0};
    return views::shared_memory(a, b);
  };
  EXPECT_EQ(answer(6, 4, 1), Overlap::kNone);
  EXPECT_EQ(answer(6, 4, 2), Overlap::kShared);
  EXPECT_EQ(answer(10001, 10007, 5), Overlap::kShared);
  EXPECT_EQ(answer(1 << 20, 3 << 19, 1 << 18), Overlap::kNone);
  EXPECT_EQ(answer(1 << 20, 3 << 19, 1 << 19), Overlap::kShared);
}

// If the answer would take too long, the call is refused, and the text says why.
TEST(Overlap, WhatTakesTooLongIsRefusedAndSaysSo) {
  // 32 byte strides without a common divisor: a knapsack problem.
  std::vector<int64_t> shape(16, 2), a_strides, b_strides;
  int64_t stride = 1000003;
  for (int i = 0; i < 32; ++i) {
    (i % 2 == 0 ? a_strides : b_strides).push_back(stride);
    stride += 10007 + 2 * i * i * i;
  }
  const opdock_dtype byte{OPDOCK_DTYPE_INT, 8, 1};
  char* const base = reinterpret_cast<char*>(uintptr_t{1} << 40);
  opdock_tensor a{base, kCpu, 16, byte, shape.data(), a_strides.data(), 0};
  opdock_tensor b{base + 7654321, kCpu, 16, byte, shape.data(), b_strides.data(), 0};
  ASSERT_EQ(views::shared_memory(a, b), Overlap::kUndecided);
  TestFunction f(rope_op());
  EXPECT_EQ(f.invoke({A::value(&a), A::value(&b)}), OPDOCK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(f.error).find("takes too long to tell"), std::string::npos) << f.error;
}

// Thousands of columns of one matrix, whose address ranges all overlap.
TEST(Overlap, ColumnsOfOneMatrixAreFolded) {
  constexpr int64_t kColumns = 2000, kRows = 8;
  std::vector<float> matrix(kColumns * kRows);
  A a;
  std::vector<View> views;
  const auto add = [&](int64_t column, int64_t width, View::Role role) {
    const opdock_tensor* x = a.tensor({kRows, width}, kF32, {kColumns, 1}, matrix.data() + column);
    views.push_back({views::extent_of(*x), x, static_cast<uint32_t>(views.size()), role, false});
  };
  for (int64_t c = kColumns; c-- > 0;) add(c, 1, View::kWritten);
  std::vector<View> sorted = views;
  EXPECT_FALSE(find_conflict(sorted.data(), sorted.size(), false).has_value());
  add(500, 2, View::kRead);
  sorted = views;
  const std::optional<MemoryConflict> conflict = find_conflict(sorted.data(), sorted.size(), false);
  ASSERT_TRUE(conflict.has_value());
  EXPECT_EQ(conflict->second, kColumns);
  EXPECT_TRUE(conflict->first == kColumns - 1 - 500 || conflict->first == kColumns - 1 - 501);
}

TEST(Overlap, AnElementOfALongListIsNamed) {
  static const opdock_op op = make_op("adamish(Tensor(a!)[] p, Tensor(b!)[] m, Tensor[] g) -> ()");
  TestFunction f(&op);
  A a;
  std::vector<opdock_value> lists[3];
  for (std::vector<opdock_value>& list : lists) {
    for (int i = 0; i < 100; ++i) list.push_back(A::value(a.tensor({4})));
  }
  EXPECT_EQ(f.invoke({a.list(lists[0]), a.list(lists[1]), a.list(lists[2])}), OPDOCK_OK) << f.error;
  lists[2][7] = lists[1][42];
  EXPECT_EQ(f.invoke({a.list(lists[0]), a.list(lists[1]), a.list(lists[2])}),
            OPDOCK_INVALID_ARGUMENT);
  EXPECT_NE(
      std::string(f.error).find("element 42 of argument 'm': found memory shared with element "
                                "7 of argument 'g'"),
      std::string::npos)
      << f.error;
  lists[2][7] = lists[2][8];  // a tensor that is read twice
  EXPECT_EQ(f.invoke({a.list(lists[0]), a.list(lists[1]), a.list(lists[2])}), OPDOCK_OK) << f.error;
}

}  // namespace
}  // namespace opdock
