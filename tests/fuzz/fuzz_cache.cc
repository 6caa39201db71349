// Fuzzes the reader of cache entry files. Appends the correct digest to the input, because no
// fuzzer would hit it by chance.
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <cstring>

#include "base/sha256.h"
#include "cache/entry_format.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace opdock::cache;
  EntryData entry;
  std::string problem;
  const EntryState as_is = decode_entry({data, size}, &entry, &problem);
  if ((as_is == EntryState::kGood) != problem.empty()) abort();
  std::vector<uint8_t> bytes(data, data + size);
  const opdock::Digest digest = opdock::sha256(std::span<const uint8_t>(bytes));
  bytes.insert(bytes.end(), digest.begin(), digest.end());
  if (decode_entry(bytes, &entry, &problem) != EntryState::kGood) return 0;
  std::vector<opdock::CacheBlob> blobs;
  for (const EntryBlob& blob : entry.blobs) {
    if (blob.offset > size || blob.size > size - blob.offset) abort();
    blobs.push_back(
        {blob.name, std::string(bytes.begin() + static_cast<ptrdiff_t>(blob.offset),
                                bytes.begin() + static_cast<ptrdiff_t>(blob.offset + blob.size))});
  }
  for (const EntryFile& file : entry.files) {
    if (!is_inner_name(file.name)) abort();
  }
  // Whatever the reader accepts can be written and read back.
  const std::string again = encode_entry(entry, blobs);
  EntryData back;
  if (decode_entry({reinterpret_cast<const uint8_t*>(again.data()), again.size()}, &back,
                   &problem) != EntryState::kGood) {
    abort();
  }
  if (back.key != entry.key || back.fields != entry.fields || back.blobs.size() != blobs.size()) {
    abort();
  }
  return 0;
}
