// SPDX-License-Identifier: Apache-2.0
// The low-level functions pull two small objects out of libcrypto.a; EVP would pull all of it.
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/sha256.h"

#include <openssl/sha.h>

namespace opdock {

Digest sha256(std::span<const uint8_t> bytes) {
  Digest digest;
  SHA256_CTX context;
  SHA256_Init(&context);
  SHA256_Update(&context, bytes.data(), bytes.size());
  SHA256_Final(digest.data(), &context);
  return digest;
}

Digest sha256(std::string_view text) {
  return sha256(std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

std::string to_hex(const Digest& digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (uint8_t byte : digest) {
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
