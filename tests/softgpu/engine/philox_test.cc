// Tests opdock/philox.cuh in host code and in kernels: it gives the published generator's numbers
// at any position.
// SPDX-License-Identifier: Apache-2.0
#include "opdock/philox.cuh"

#include <algorithm>
#include <array>

#include "test_support.h"

namespace softgpu {
namespace {

using Words = std::array<uint32_t, 4>;

struct Known {
  Words counter;
  std::array<uint32_t, 2> key;
  Words wanted;
};

// The rows "philox4x32 10" of kat_vectors in Random123, the authors' own implementation.
const std::vector<Known>& known() {
  static const std::vector<Known> rows = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
  return rows;
}

// Implements section 4.2 of the paper one word at a time: the left words are multiplied, and each
// product's upper word goes to the other side.
Words philox(Words c, uint64_t key) {
  constexpr uint64_t kWord = uint64_t{1} << 32;
  for (uint64_t round = 0; round < 10; ++round) {
    const uint64_t left = (key % kWord + round * 0x9e3779b9) % kWord;
    const uint64_t right = (key / kWord + round * 0xbb67ae85) % kWord;
    const uint64_t first = uint64_t{0xd2511f53} * c[0], second = uint64_t{0xcd9e8d57} * c[2];
    c = {static_cast<uint32_t>((second / kWord) ^ c[1] ^ left),
         static_cast<uint32_t>(second % kWord),
         static_cast<uint32_t>((first / kWord) ^ c[3] ^ right),
         static_cast<uint32_t>(first % kWord)};
  }
  return c;
}

uint32_t number(uint64_t seed, uint64_t n) {
  const uint64_t block = n / 4;
  return philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0},
                seed)[n % 4];
}

constexpr uint64_t kSeed = 0x0123456789abcdef;

// Returns positions with every remainder, positions where the counter's lower word overflows, and
// the last positions.
std::vector<uint64_t> positions() {
  std::vector<uint64_t> all;
  for (uint64_t near : {uint64_t{4}, uint64_t{4} << 32, uint64_t{0}})
    for (uint64_t i = 0; i < 16; ++i) all.push_back(near + i - 8);
  return all;
}

TEST(Philox, IsThePublishedOneInHostCode) {
  static_assert(opdock::philox4x32_10({{0, 0, 0, 0}}, 0, 0).word[3] == 0x9b00dbd8);
  for (const Known& row : known()) {
    const auto [a, b, c, d] = row.counter;
    const opdock::PhiloxWords found = opdock::philox4x32_10({{a, b, c, d}}, row.key[0], row.key[1]);
    EXPECT_TRUE(std::equal(row.wanted.begin(), row.wanted.end(), found.word));
    EXPECT_EQ(philox(row.counter, uint64_t{row.key[1]} << 32 | row.key[0]), row.wanted);
  }
}

TEST(Philox, IsThePublishedOneInKernels) {
  for (const uint32_t width : {32u, 64u}) {
    const std::vector<Kernel> kernels = make_kernels(
        "#include \"opdock/device.cuh\"\n#include \"opdock/philox.cuh\"\n"
        "OPDOCK_KERNEL(64) block(const unsigned* in, unsigned* out) {\n"
        "  const auto words = opdock::philox4x32_10({{in[0], in[1], in[2], in[3]}}, in[4], "
        "in[5]);\n"
        "  for (int i = 0; i < 4; ++i) out[i] = words.word[i];\n"
        "}\n",
        {"block"}, width);
    ASSERT_EQ(kernels.size(), 1u);
    for (const Known& row : known()) {
      std::vector<uint32_t> in(row.counter.begin(), row.counter.end());
      in.insert(in.end(), row.key.begin(), row.key.end());
      const DeviceArray<uint32_t> from(in), to(4);
      EXPECT_EQ(finding_of(launch_of(kernels[0], 1, 1, from.data(), to.data())), "");
      EXPECT_EQ(to.get(), std::vector<uint32_t>(row.wanted.begin(), row.wanted.end()));
    }
  }
}

TEST(Philox, NumbersFromAnyPositionInHostCode) {
  for (const uint64_t first : positions()) {
    uint32_t four[4], twelve[12];
    opdock::random_numbers(kSeed, first, four);
    opdock::random_numbers(kSeed, first, twelve);
    for (uint64_t i = 0; i < 4; ++i)
      EXPECT_EQ(four[i], number(kSeed, first + i)) << first << " + " << i;
    for (uint64_t i = 0; i < 12; ++i)
      EXPECT_EQ(twelve[i], number(kSeed, first + i)) << first << " + " << i;
  }
}

TEST(Philox, NumbersFromAnyPositionInKernels) {
  const std::vector<uint64_t> all = positions();
  const int count = static_cast<int>(all.size());
  for (const uint32_t width : {32u, 64u}) {
    const std::vector<Kernel> kernels = make_kernels(
        "#include \"opdock/device.cuh\"\n#include \"opdock/philox.cuh\"\n"
        "OPDOCK_KERNEL(64) draw(opdock::RandomSource random, const opdock::uint64_t* first,\n"
        "                       unsigned* out) {\n"
        "  const int i = opdock::thread_index();\n"
        "  unsigned number[8];\n"
        "  opdock::random_numbers(random.current_seed(), random.offset + first[i], number);\n"
        "  for (int k = 0; k < 8; ++k) out[8 * i + k] = number[k];\n"
        "}\n",
        {"draw"}, width);
    ASSERT_EQ(kernels.size(), 1u);
    const DeviceArray<uint64_t> first(all), seed(std::vector<uint64_t>{kSeed});
    // First the seed is passed by value; then it lies in device memory, and the value argument is
    // ignored.
    for (const bool in_memory : {false, true}) {
      const opdock::RandomSource random = {
          in_memory ? 99 : kSeed, 7,
          in_memory ? reinterpret_cast<unsigned long long*>(seed.data()) : nullptr};
      const DeviceArray<uint32_t> out(8 * all.size());
      EXPECT_EQ(finding_of(launch_of(kernels[0], 1, static_cast<uint32_t>(count), random,
                                     static_cast<const uint64_t*>(first.data()), out.data())),
                "");
      const std::vector<uint32_t> found = out.get();
      for (size_t i = 0; i < found.size(); ++i)
        EXPECT_EQ(found[i], number(kSeed, all[i / 8] + 7 + i % 8)) << all[i / 8];
    }
  }
}

}  // namespace
}  // namespace softgpu
