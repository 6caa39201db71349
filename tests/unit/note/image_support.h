// Shared by the tests of images and their containers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "note/file_facts.h"
#include "support/image_builder.h"

namespace opdock {

using namespace opdock_test;

// Calls body(&reader, size) for a file of these bytes.
template <class Body>
void read_bytes(const Bytes& bytes, const Body& body) {
  const int fd = open_bytes(bytes.data);
  FileReader reader(fd, bytes.size());
  body(&reader, bytes.size());
  close(fd);
}

// Calls body(&reader, size) for copies of `good` with one of its first `count` bytes changed, both
// with the full size and with the size cut at that byte. More bytes follow in the file, and none of
// them may be used: body returns all that it has read as text, and must return the same for a file
// that ends there.
template <class Body>
void read_damaged(const Bytes& good, size_t count, const Body& body) {
  const auto answer = [&body](const Bytes& bytes, size_t size) {
    std::string text;
    read_bytes(bytes, [&](FileReader* reader, size_t) { text = body(reader, size); });
    return text;
  };
  for (size_t at = 0; at < count; ++at) {
    for (const uint8_t value : {0, 1, 0x7f, 0xff}) {
      Bytes damaged = good;
      damaged.data[at] = value;
      for (const size_t size : {good.size(), at}) {
        Bytes ending = damaged, followed = damaged;
        ending.data.resize(size);
        followed.add(good);  // bytes that look like a continuation
        followed.data.resize(followed.size() + 5000, 0x41);
        ASSERT_EQ(answer(followed, size), answer(ending, size))
            << "byte " << at << " is " << int{value} << ", " << size << " bytes";
      }
    }
  }
}

// Returns images as text; each must lie within the first `size` bytes.
inline std::string within(const std::vector<DeviceImage>& images, uint64_t end, size_t size) {
  std::string text = std::to_string(end);
  EXPECT_LE(end, size);
  for (const DeviceImage& image : images) {
    EXPECT_LE(image.offset, size);
    EXPECT_LE(image.size, size - std::min<uint64_t>(image.offset, size));
    text += " " + image.arch + "(" + image.claimed_arch + ") " + image.toolkit.text() + " " +
            std::to_string(image.offset) + "+" + std::to_string(image.size);
  }
  return text;
}

inline FileFacts read_images(Plugin plugin, Depth depth) {
  const int fd = open_bytes(plugin.file().data);
  FileFacts facts = read_file_facts(fd, plugin.file().size(), "p.so", depth);
  close(fd);
  return facts;
}

// Returns the facts of a plugin that contains these bytes somewhere.
inline FileFacts inspect(const Bytes& extra) {
  Plugin plugin;
  plugin.extra = extra;
  return read_images(plugin, Depth::kInspect);
}

// Returns the images' architectures, such as "sm_80 gfx90a* ?": a star marks a compressed image,
// and "?" stands for an unknown architecture.
inline std::string shown(const FileFacts& facts) {
  std::string text;
  for (const DeviceImage& image : facts.images) {
    text += text.empty() ? "" : " ";
    text += image.arch.empty() ? "?" : image.arch;
    if (!image.claimed_arch.empty()) text += "(" + image.claimed_arch + ")";
    if (image.compressed) text += "*";
  }
  return text;
}

}  // namespace opdock
