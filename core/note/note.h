// The Opdock note, in which a plugin describes itself (docs/reference/note.md has the format).
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

inline constexpr char kNoteOwner[] = "opdock";    // n_name: 7 bytes with its NUL
inline constexpr uint32_t kNoteType = 1;          // n_type
inline constexpr uint32_t kMaxNoteBytes = 65536;  // of the descriptor, which is head and JSON
inline constexpr uint16_t kNoteVersion = 2;

// The descriptor's head, little-endian. head_size allows later versions to append members.
struct NoteHead {
  uint16_t note_version;
  uint16_t head_size;
  uint16_t abi_major;
  uint16_t abi_minor;
  uint32_t flags;  // none defined yet
  uint32_t json_size;
  std::array<uint8_t, 32> build_hash;  // SHA-256 over everything that the plugin was built from
};
static_assert(sizeof(NoteHead) == 48);

// Returns whether this host calls plugins of that ABI: those of its own major and, while the major
// is 0 (a draft), only those of its own minor.
bool is_callable_abi(uint32_t major, uint32_t minor);
// abi_text returns "ABI 0.3"; callable_abi_text describes the callable ABIs, such as "ABI 1.x".
std::string abi_text(uint32_t major, uint32_t minor);
std::string callable_abi_text();

enum class Backend : uint32_t { kCpu = 1, kCuda = 2, kRocm = 10 };  // OPDOCK_CPU, …
enum class ImageKind : uint32_t { kCubin = 1, kPtx = 2, kCodeObject = 3, kSource = 4 };

std::string_view to_text(Backend backend);  // "cpu", "cuda", "rocm"
std::string_view to_text(ImageKind kind);   // "cubin", "ptx", "code-object", "source"
std::optional<Backend> parse_backend(std::string_view text);
std::optional<ImageKind> parse_image_kind(std::string_view text);

// One device image as the note's JSON claims it. The images have the order of the image table.
struct ImageClaim {
  Backend backend;  // for source, which serves every GPU kind that the ops name: one of these kinds
  ImageKind kind;
  std::string arch;  // "sm_90a", "compute_75", "gfx90a:xnack-"; for source the file's name
  Version toolkit;   // the run-time compiler's version; empty for source
  std::string sha256;
};

struct OpClaim {
  std::string name;    // the name in the schema
  std::string schema;  // in canonical form
  std::string digest;  // SHA-256 of the schema, in hex
  std::vector<std::string> devices;
  std::vector<std::string> dtypes;
  std::vector<std::string> shape_rules;
  std::vector<std::string> flags;  // "thread-safe", …
  std::string device_arg;          // empty: the first tensor parameter
  // Parameters whose tensors may be on another device than the op runs on, and where: "cpu", "any".
  std::vector<std::pair<std::string, std::string>> elsewhere;
  std::vector<std::string> gradients;  // "x = f(grads[0])", …; empty: none is declared
};

// A library that must be in the process or loadable, with the range of versions that fits:
// ("torch", ">=2.11"). Names: "torch", "cudart", "python", "rocm"; ranges are comma-separated
// comparisons.
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
  int least_cuda = 0;     // 10 * major + minor of the oldest GPU that it supports; 0: any GPU
  std::string cpu_arch;   // "x86_64", "aarch64"
  int cpu_level = 1;      // x86-64: 1…4, the psABI's levels; aarch64: 0
  std::string toolchain;  // a description for people
};

// Reads a note's descriptor (head and JSON). On failure returns nullopt and appends reasons
// (Code::kNote…). Ignores unknown JSON members: later minors add some.
std::optional<Note> read_note(std::span<const uint8_t> descriptor, std::vector<Reason>* reasons);

// Returns the JSON text for `note`, without its head. Reading the text gives the same note.
std::string note_json(const Note& note);

// ---- the image table, at the dynamic symbol OPDOCK_IMAGES_NAME: little-endian, aligned to 64
// bytes

inline constexpr char kImageMagic[8] = {'O', 'P', 'D', 'K', 'I', 'M', 'G', '1'};
struct ImageTableHead {
  char magic[8];
  uint32_t count;
  uint32_t entry_size;  // sizeof(ImageEntry) of the writer; allows later versions to append
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
