// SPDX-License-Identifier: Apache-2.0
// The low-level SHA256_* functions pull two small objects out of libcrypto.a; EVP would pull in all
// of it.
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/sha256.h"

#include <openssl/sha.h>

namespace opdock {

struct Sha256::State {
  SHA256_CTX context;
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  SHA256_Init(&state_->context);
}
Sha256::~Sha256() = default;

void Sha256::add(std::span<const uint8_t> bytes) {
  SHA256_Update(&state_->context, bytes.data(), bytes.size());
}

Digest Sha256::finish() {
  Digest digest;
  SHA256_Final(digest.data(), &state_->context);
  return digest;
}

Digest sha256(std::span<const uint8_t> bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.finish();
}

Digest sha256(std::string_view text) {
  return sha256(std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

std::string to_hex(std::span<const uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

FieldHasher& FieldHasher::add(std::string_view field) {
  buffer_ += std::to_string(field.size());
  buffer_ += ':';
  buffer_ += field;
  return *this;
}

Digest FieldHasher::finish() const {
  return sha256(buffer_);
}

}  // namespace opdock
