// SHA-256 (FIPS 180-4), by OpenSSL's libcrypto.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace opdock {

using Digest = std::array<uint8_t, 32>;

Digest sha256(std::span<const uint8_t> bytes);
Digest sha256(std::string_view text);

// 64 lower-case hexadecimal digits.
std::string to_hex(const Digest& digest);

// A digest over fields that cannot run into each other: each goes in with its length before it.
class FieldHasher {
 public:
  FieldHasher& add(std::string_view field);
  Digest finish() const;

 private:
  std::string buffer_;
};

}  // namespace opdock
