// SHA-256 (FIPS 180-4), by OpenSSL's libcrypto.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace opdock {

using Digest = std::array<uint8_t, 32>;

Digest sha256(std::span<const uint8_t> bytes);
Digest sha256(std::string_view text);

// Lower-case hexadecimal digits, two a byte.
std::string to_hex(std::span<const uint8_t> bytes);

// The same for bytes that come in pieces.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void add(std::span<const uint8_t> bytes);
  Digest finish();  // once

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A digest over fields that cannot run into each other: each goes in with its length before it.
class FieldHasher {
 public:
  FieldHasher& add(std::string_view field);
  Digest finish() const;

 private:
  std::string buffer_;
};

}  // namespace opdock
