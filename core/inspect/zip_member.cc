// Finds and unpacks one member of a zip archive.
// SPDX-License-Identifier: Apache-2.0
#include <zlib.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "fmt/format.h"
#include "inspect/zip.h"
#include "note/reader.h"

namespace opdock {
namespace {

constexpr uint32_t kLocalMagic = 0x04034b50;
constexpr size_t kLocalBytes = 30;
constexpr size_t kPiece = 256 * 1024, kMinPiece = 4096;

uint16_t u16(const uint8_t* bytes) {
  return static_cast<uint16_t>(bytes[0] | bytes[1] << 8);
}

// Counts and checksums the unpacked bytes, and passes on at most `most` of them.
struct Sink {
  const ZipEntry& entry;
  uint64_t most;
  const std::function<bool(const uint8_t* bytes, size_t count)>& take;
  std::string* problem;
  uint64_t total = 0;
  uLong crc = crc32(0, nullptr, 0);

  bool add(const uint8_t* bytes, size_t count) {
    if (count > entry.size - total) {
      *problem = fmt::format("more bytes than the {} that the directory says", entry.size);
      return false;
    }
    const size_t wanted = static_cast<size_t>(std::min<uint64_t>(count, most - total));
    crc = crc32(crc, bytes, static_cast<uInt>(count));
    total += count;
    if (wanted != 0 && !take(bytes, wanted)) {
      *problem = "nowhere to put its bytes";
      return false;
    }
    return true;
  }
  bool is_full() const { return total >= most; }
  bool finish() const {
    if (total != entry.size) {
      *problem =
          fmt::format("{} bytes instead of the {} that the directory says", total, entry.size);
      return false;
    }
    if (crc == entry.crc) return true;
    *problem = "a checksum that is not the directory's";
    return false;
  }
};

bool check_limits(const ZipEntry& entry, std::string* problem) {
  if (entry.is_encrypted) {
    *problem = "an encrypted member";
  } else if (entry.method != 0 && entry.method != Z_DEFLATED) {
    *problem = fmt::format("compression method {}", entry.method);
  } else if (entry.method == 0 && entry.packed != entry.size) {
    *problem = fmt::format("a stored member of {} bytes in {}", entry.size, entry.packed);
  } else if (entry.size > kMaxMemberBytes) {
    *problem =
        fmt::format("a member of {} bytes, above the limit of {}", entry.size, kMaxMemberBytes);
  } else if (entry.size > kFreeMemberBytes && entry.size / kMaxRatio > entry.packed) {
    *problem = fmt::format("{} bytes packed into {}, above the limit of {} to 1", entry.size,
                           entry.packed, kMaxRatio);
  } else {
    return true;
  }
  return false;
}

}  // namespace

std::optional<uint64_t> Zip::find_data(const ZipEntry& entry, std::string* problem) const {
  FileReader reader(fd_, directory_);
  uint8_t header[kLocalBytes];
  const bool is_there =
      entry.header <= directory_ && reader.read_exactly(entry.header, header, sizeof header) &&
      (header[0] | header[1] << 8 | header[2] << 16 | static_cast<uint32_t>(header[3]) << 24) ==
          kLocalMagic;
  if (!is_there) {
    *problem = fmt::format("no header of the member at {:#x}", entry.header);
    return std::nullopt;
  }
  const uint16_t name_size = u16(header + 26), extra_size = u16(header + 28);
  std::string name(name_size, '\0');
  if (!reader.read_exactly(entry.header + sizeof header, name.data(), name_size) ||
      name != entry.name) {
    *problem = "another name in the member's header than in the directory";
    return std::nullopt;
  }
  const uint64_t data = entry.header + sizeof header + name_size + extra_size;
  if (data > directory_ || entry.packed > directory_ - data) {
    *problem = fmt::format("{} bytes at {:#x}, beyond where members end", entry.packed, data);
    return std::nullopt;
  }
  return data;
}

bool Zip::read(const ZipEntry& entry, uint64_t most,
               const std::function<bool(const uint8_t* bytes, size_t count)>& take,
               std::string* problem) const {
  if (!check_limits(entry, problem)) return false;
  const std::optional<uint64_t> data = find_data(entry, problem);
  if (!data) return false;
  FileReader reader(fd_, *data + entry.packed);
  Sink sink{entry, std::min(most, entry.size), take, problem};
  // The buffers are no larger than needed: for most members only the first bytes are wanted.
  const uint64_t wanted = std::min<uint64_t>(kPiece, sink.most);
  std::vector<uint8_t> in(static_cast<size_t>(
      std::min(std::max<uint64_t>(wanted, kMinPiece), std::max<uint64_t>(entry.packed, 1))));
  std::vector<uint8_t> out(static_cast<size_t>(std::max<uint64_t>(wanted, 1)));
  z_stream stream{};
  if (entry.method != 0 && inflateInit2(&stream, -MAX_WBITS) != Z_OK) {
    *problem = "no memory to unpack it in";
    return false;
  }
  const auto end_stream = [&](z_stream* used) {
    if (entry.method != 0) inflateEnd(used);
  };
  const std::unique_ptr<z_stream, decltype(end_stream)> ended(&stream, end_stream);
  bool is_whole = entry.method == 0;
  for (uint64_t at = 0; at < entry.packed;) {
    const size_t count = static_cast<size_t>(std::min<uint64_t>(in.size(), entry.packed - at));
    if (!reader.read_exactly(*data + at, in.data(), count)) {
      *problem = "bytes that cannot be read";
      return false;
    }
    at += count;
    if (entry.method == 0) {
      if (!sink.add(in.data(), count)) return false;
      if (sink.is_full() && most < entry.size) return true;
      continue;
    }
    stream.next_in = in.data();
    stream.avail_in = static_cast<uInt>(count);
    int state = Z_OK;
    do {
      stream.next_out = out.data();
      stream.avail_out = static_cast<uInt>(out.size());
      state = inflate(&stream, Z_NO_FLUSH);
      if (state != Z_OK && state != Z_STREAM_END && state != Z_BUF_ERROR) {
        *problem = "damaged compressed bytes";
        return false;
      }
      if (!sink.add(out.data(), out.size() - stream.avail_out)) return false;
      if (sink.is_full() && most < entry.size) return true;
    } while (state == Z_OK && stream.avail_out == 0);
    is_whole = state == Z_STREAM_END;
    if (is_whole && (stream.avail_in != 0 || at < entry.packed)) {
      *problem = "bytes behind the end of the compressed ones";
      return false;
    }
  }
  if (!is_whole && entry.packed != 0) {
    *problem = "compressed bytes that break off";
    return false;
  }
  return sink.finish();
}

}  // namespace opdock
