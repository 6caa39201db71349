// SHA-256 (FIPS 180-4), computed by OpenSSL's libcrypto.
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

// Returns lower-case hexadecimal digits, two per byte.
std::string to_hex(std::span<const uint8_t> bytes);

// Computes SHA-256 incrementally.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void add(std::span<const uint8_t> bytes);
  Digest finish();  // call it only once

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Hashes a list of fields unambiguously: the length of each field is hashed before the field.
class FieldHasher {
 public:
  FieldHasher& add(std::string_view field);
  Digest finish() const;

 private:
  std::string buffer_;
};

}  // namespace opdock
