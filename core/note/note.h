// The Opdock note: what a plugin claims about itself (docs/note.md has the format).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/reason.h"
#include "base/version.h"

namespace opdock {

inline constexpr char kNoteOwner[] = "opdock";    // n_name, with its NUL: 7 bytes
inline constexpr uint32_t kNoteType = 1;          // n_type
inline constexpr uint32_t kMaxNoteBytes = 65536;  // of the descriptor: head and JSON
inline constexpr uint16_t kNoteVersion = 2;

// The descriptor's head, little-endian. head_size lets later versions append.
struct NoteHead {
  uint16_t note_version;
  uint16_t head_size;
  uint16_t abi_major;
  uint16_t abi_minor;
  uint32_t flags;  // none defined yet
  uint32_t json_size;
  std::array<uint8_t, 32> build_hash;  // SHA-256 over what the plugin was made from
};
static_assert(sizeof(NoteHead) == 48);

// Whether this host calls plugins of that ABI: of its own major; while that is 0, a draft, of its
// own minor too.
bool is_callable_abi(uint32_t major, uint32_t minor);
// "ABI 0.3", and what callable ones are, "ABI 1.x".
std::string abi_text(uint32_t major, uint32_t minor);
std::string callable_abi_text();

enum class Backend : uint32_t { kCpu = 1, kCuda = 2, kRocm = 10 };  // OPDOCK_CPU, …
enum class ImageKind : uint32_t { kCubin = 1, kPtx = 2, kCodeObject = 3, kSource = 4 };

std::string_view to_text(Backend backend);  // "cpu", "cuda", "rocm"
std::string_view to_text(ImageKind kind);   // "cubin", "ptx", "code-object", "source"
std::optional<Backend> parse_backend(std::string_view text);
std::optional<ImageKind> parse_image_kind(std::string_view text);

// One device image as the note's JSON claims it. Images stand in the table's order.
struct ImageClaim {
  Backend backend;  // of source, which is for whatever GPUs the ops name: one of theirs
  ImageKind kind;
  std::string arch;  // "sm_90a", "compute_75", "gfx90a:xnack-"; for source the file's name
  Version toolkit;   // the run-time compiler's; empty for source
  std::string sha256;
};

struct OpClaim {
  std::string name;    // the schema's
  std::string schema;  // canonical text
  std::string digest;  // SHA-256 of it, hex
  std::vector<std::string> devices;
  std::vector<std::string> dtypes;
  std::vector<std::string> shape_rules;
  std::vector<std::string> flags;  // "thread-safe", …
  std::string device_arg;          // empty: the first tensor parameter
  // Parameters whose tensors lie elsewhere than the op runs, and where: "cpu", "any".
  std::vector<std::pair<std::string, std::string>> elsewhere;
  std::vector<std::string> gradients;  // "x = f(grads[0])", …; empty: nothing is declared
};

// A library that must be in the process or reachable, with the range that fits: ("torch",
// ">=2.11"). Names: "torch", "cudart", "python", "rocm"; ranges are comma-separated comparisons.
struct LibraryClaim {
  std::string library;
  std::string range;
};

struct Note {
  NoteHead head{};
  std::string name;
  Version version;
  std::string license;
  std::vector<OpClaim> ops;
  std::vector<Backend> devices;
  std::vector<ImageClaim> images;
  std::vector<LibraryClaim> libraries;
  int least_cuda = 0;     // 10 * major + minor: nothing is made for GPUs below it; 0: any will do
  std::string cpu_arch;   // "x86_64", "aarch64"
  int cpu_level = 1;      // x86-64: 1…4, the psABI's levels; aarch64: 0
  std::string toolchain;  // for people
};

// Reads a note descriptor (head and JSON). On failure returns nullopt and appends reasons
// (Code::kNote…). Unknown JSON members are ignored: later minors add some.
std::optional<Note> read_note(std::span<const uint8_t> descriptor, std::vector<Reason>* reasons);

// The JSON text for `note`; its head is not part of it. Read back, it gives the same note.
std::string note_json(const Note& note);

// ---- the image table: what the dynamic symbol OPDOCK_IMAGES_NAME names, little-endian, 64-byte
// aligned

inline constexpr char kImageMagic[8] = {'O', 'P', 'D', 'K', 'I', 'M', 'G', '1'};
struct ImageTableHead {
  char magic[8];
  uint32_t count;
  uint32_t entry_size;  // sizeof(ImageEntry) when written; lets later versions append
};
struct ImageEntry {
  uint32_t backend;  // Backend
  uint32_t kind;     // ImageKind
  char arch[48];     // NUL-padded
  uint32_t toolkit_major;
  uint32_t toolkit_minor;
  uint64_t offset;  // from the table's start
  uint64_t size;
  uint64_t names_offset;  // pairs of NUL-terminated strings: source-level name, name in the image
  uint64_t names_size;
  uint8_t sha256[32];
};
static_assert(sizeof(ImageTableHead) == 16 && sizeof(ImageEntry) == 128);

}  // namespace opdock
