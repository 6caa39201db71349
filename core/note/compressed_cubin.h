// What a cubin that lies compressed in a fat binary says about itself.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "note/image_identity.h"
#include "note/reader.h"

namespace opdock {

enum class CubinCompression { kLz4, kZstd };

// Decompresses the `size` bytes at `offset` as far as it takes to read the ELF header and, where
// that does not name the toolkit, the note that does: nothing is kept but the latest bytes. nullopt
// if no cubin comes out. *budget: how many bytes may still be decompressed; what was is taken off.
// When it is used up, or beyond 256 times the compressed size, the toolkit stays empty.
std::optional<ImageIdentity> identify_compressed_cubin(FileReader* reader,
                                                       CubinCompression compression,
                                                       uint64_t offset, uint64_t size,
                                                       uint64_t* budget);

}  // namespace opdock
