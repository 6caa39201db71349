// Reads the architecture and the toolkit from a cubin that a fat binary holds compressed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "note/image_identity.h"
#include "note/reader.h"

namespace opdock {

enum class CubinCompression { kLz4, kZstd };

// Decompresses the `size` bytes at `offset` until the ELF header is read and, if the header does
// not name the toolkit, the note that does. Keeps only the latest bytes in memory. Returns nullopt
// if the decompressed bytes are not a cubin. *budget is the number of bytes that may still be
// decompressed; it is reduced by what was decompressed. When it is used up, or beyond 256 times the
// compressed size, the toolkit stays empty.
std::optional<ImageIdentity> identify_compressed_cubin(FileReader* reader,
                                                       CubinCompression compression,
                                                       uint64_t offset, uint64_t size,
                                                       uint64_t* budget);

}  // namespace opdock
