// Tests the keys of calls of formulas, and what is found by them.
// SPDX-License-Identifier: Apache-2.0
#include "fused/recent_calls.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>

namespace opdock {
namespace {

// The arguments of a call, which a test changes.
struct Call {
  uint64_t op = 1;
  opdock_device device{OPDOCK_CUDA, 0};
  uint64_t unit = 16;
  char memory[64] = {};
  int64_t shape[3] = {2, 3, 4}, strides[3] = {12, 4, 1};
  opdock_tensor x{memory, {OPDOCK_CUDA, 0}, 2, {OPDOCK_DTYPE_FLOAT, 32, 1}, shape, strides, 0};
  std::string text = "tanh and more";
  opdock_string string{};
  opdock_value values[6] = {};
  uint32_t count = 6;

  Call() {
    values[0].tag = OPDOCK_TAG_TENSOR;
    values[1].tag = OPDOCK_TAG_NONE;
    values[2].tag = OPDOCK_TAG_BOOL;
    values[3].tag = OPDOCK_TAG_STRING;
    values[4].tag = OPDOCK_TAG_FLOAT;
    values[5].tag = OPDOCK_TAG_DTYPE;
    values[5].as.dtype = {OPDOCK_DTYPE_FLOAT, 16, 1};
  }
  CallKey key() {
    values[0].as.tensor = &x;
    string = {text.data(), text.size()};
    values[3].as.str = &string;
    CallKey made(op, device);
    made.add(values, count, unit);
    return made;
  }
};

bool same(const CallKey& a, const CallKey& b) {
  std::vector<uint64_t> words;
  b.copy_to(&words);
  return a == words;
}

TEST(CallKey, IsTheSameForOtherNumbersAndAddresses) {
  Call a, b;
  b.values[4].as.f64 = 3;
  b.x.data = b.memory +
             (reinterpret_cast<uintptr_t>(a.memory) - reinterpret_cast<uintptr_t>(b.memory)) % 16 +
             16;
  b.x.byte_offset = 16;
  EXPECT_TRUE(same(a.key(), b.key()));
  EXPECT_EQ(a.key().hash(), b.key().hash());
  EXPECT_TRUE(a.key().is_complete());
}

TEST(CallKey, DiffersInAllThatDecides) {
  const std::vector<std::function<void(Call*)>> changes = {
      [](Call* c) { c->op = 2; },
      [](Call* c) { c->device.index = 1; },
      [](Call* c) { c->device.type = OPDOCK_CPU; },
      [](Call* c) { c->shape[0] = 3; },
      [](Call* c) { c->strides[1] = 2; },
      [](Call* c) { c->x.ndim = 3; },
      [](Call* c) { c->x.ndim = 1; },
      [](Call* c) { c->x.dtype.bits = 16; },
      [](Call* c) { c->x.dtype.code = OPDOCK_DTYPE_INT; },
      [](Call* c) { c->x.byte_offset += 4; },
      [](Call* c) { c->x.data = static_cast<char*>(c->x.data) + 4; },
      [](Call* c) { c->values[1].tag = OPDOCK_TAG_FLOAT; },
      [](Call* c) { c->values[2].as.i64 = 1; },
      [](Call* c) { c->text = "tanh and mare"; },
      [](Call* c) { c->text = "tanh and mor"; },
      [](Call* c) { c->text = ""; },
      [](Call* c) { c->text.push_back(0); },
      [](Call* c) { c->values[4].tag = OPDOCK_TAG_INT; },
      [](Call* c) { c->values[5].as.dtype.bits = 64; },
      [](Call* c) { c->count = 5; },
  };
  Call call;
  const CallKey key = call.key();
  for (size_t i = 0; i < changes.size(); ++i) {
    Call other = call;  // its tensor has the memory, the shape and the strides of `call`
    other.x.shape = other.shape;
    other.x.strides = other.strides;
    EXPECT_TRUE(same(key, other.key())) << i;
    changes[i](&other);
    EXPECT_FALSE(same(key, other.key())) << i;
  }
}

TEST(CallKey, IsNotCompleteForWhatItCannotHold) {
  const std::vector<std::function<void(Call*)>> changes = {
      [](Call* c) { c->values[1].tag = OPDOCK_TAG_LIST; },
      [](Call* c) { c->values[1].tag = OPDOCK_TAG_OBJECT; },
      [](Call* c) { c->text.assign(2000, 'x'); },
      [](Call* c) { c->text.assign(1984, 'x'); },
      [](Call* c) { c->x.strides = nullptr; },
      [](Call* c) { c->x.ndim = -1; },
      [](Call* c) { c->x.ndim = 17; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    Call call;
    changes[i](&call);
    EXPECT_FALSE(call.key().is_complete()) << i;
  }
  Call call;
  CallKey key = call.key();
  for (int i = 0; i < 100; ++i) key.add(call.values, call.count, 16);
  EXPECT_FALSE(key.is_complete());
}

TEST(ThreadCalls, KnowByANumberWhoseKeyTheyHave) {
  ThreadCalls calls, others;  // of two threads
  Call call;
  const CallKey wanted = call.key();
  calls.begin(call.op, call.device, call.values, call.count);
  others.begin(call.op, call.device, call.values, call.count);
  EXPECT_TRUE(same(calls.key, wanted));
  EXPECT_NE(calls.number, others.number);
  std::set<uint64_t> numbers = {0, calls.number};
  calls.add_results(call.device, call.values, 1);
  EXPECT_FALSE(same(calls.key, wanted));
  EXPECT_TRUE(numbers.insert(calls.number).second);
  CallKey both(call.op, call.device);
  both.add(call.values, call.count, call.unit);
  both.add(call.values, 1, call.unit);
  EXPECT_TRUE(same(calls.key, both));
  calls.begin(call.op, call.device, call.values, call.count);
  EXPECT_TRUE(same(calls.key, wanted));
  EXPECT_TRUE(numbers.insert(calls.number).second);
}

TEST(RecentCalls, AreFoundByTheirWholeKey) {
  RecentCalls<int> calls;
  Call call;
  int found = 0;
  for (int turn = 0; turn < 2; ++turn) {
    for (int i = 0; i < 1000; ++i) {
      call.shape[0] = i;
      const CallKey key = call.key();
      const int* const known = calls.find(key);
      ASSERT_TRUE(known == nullptr || *known == i);
      calls.keep(key, i);
      ASSERT_NE(calls.find(key), nullptr);
      ASSERT_EQ(*calls.find(key), i);
    }
    for (int i = 0; i < 1000; ++i) {
      call.shape[0] = i;
      const int* const known = calls.find(call.key());
      ASSERT_TRUE(known == nullptr || *known == i);
      found += known != nullptr;
    }
  }
  EXPECT_GT(found, 60);  // of 64 places, twice
}

// Returns the hash of these words.
uint64_t hash_of(const std::vector<uint64_t>& words, size_t count) {
  uint64_t hash = 0;
  for (size_t i = 0; i < count; ++i) {
    hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  return hash;
}

// A stride makes up for another shape, so that the hashes are equal: nothing wrong is found.
TEST(RecentCalls, OfOneHashAreNotConfused) {
  Call call;
  call.x.ndim = call.count = 1;
  const CallKey key = call.key();
  std::vector<uint64_t> words, others;
  key.copy_to(&words);
  call.shape[0] = 1000;
  call.key().copy_to(&others);
  const size_t last = words.size() - 1;
  call.strides[0] =
      static_cast<int64_t>(hash_of(words, last) ^ words[last] ^ hash_of(others, last));
  const CallKey other = call.key();
  ASSERT_EQ(other.hash(), key.hash());
  RecentCalls<int> calls;
  calls.keep(key, 1);
  EXPECT_EQ(calls.find(other), nullptr);
  calls.keep(other, 2);
  EXPECT_EQ(*calls.find(key), 1);
  EXPECT_EQ(*calls.find(other), 2);
}

}  // namespace
}  // namespace opdock
