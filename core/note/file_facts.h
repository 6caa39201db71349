// What an ELF file is, read without executing anything of it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/reason.h"
#include "base/version.h"
#include "note/link_facts.h"
#include "note/note.h"

namespace opdock {

struct SymbolVersion {  // one row of .gnu.version_r
  std::string library;  // "libc.so.6"
  std::string version;  // "GLIBC_2.34"
  bool weak = false;
  uint16_t index = 0;                    // what .gnu.version says of the symbols that ask for it
  bool hidden = false;                   // only a definition of this very version will do
  uint32_t name_at = 0, library_at = 0;  // where the texts are in the string table
};

// A device image found in the file: in the plugin's image table, in an nvcc fat binary, or in a HIP
// bundle. The architecture comes from the image itself wherever the image shows it.
struct DeviceImage {
  Backend backend;
  ImageKind kind;
  std::string arch;  // with suffix: "sm_90a", "compute_100f", "gfx90a:sramecc+:xnack-"
  Version toolkit;   // empty if neither the image nor its container has it
  bool compressed = false;
  bool from_table = false;   // Opdock's own table, not a fat binary
  std::string claimed_arch;  // what the container or the note says, if it differs from `arch`
  uint64_t offset = 0;       // of the image's bytes in the file
  uint64_t size = 0;
};

// Where Opdock's image table lies, by its dynamic symbol. size 0: there is none.
struct ImageTablePlace {
  uint64_t address = 0;  // virtual
  uint64_t offset = 0;   // in the file
  uint64_t size = 0;
};

struct Library;

struct FileFacts {
  std::string path;
  uint64_t size = 0;
  bool is_elf = false;
  uint16_t machine = 0;   // EM_X86_64 …; 0 if not ELF, or if its header cannot be read
  unsigned elf_bits = 0;  // 32 or 64; 0 as above
  bool big_endian = false;
  bool is_shared_object = false;
  bool is_program = false;  // which the kernel starts, and dlopen refuses
  std::vector<std::string> needed;
  std::vector<SymbolVersion> versions;
  std::string soname, rpath, runpath;
  bool executable_stack = false;
  bool static_tls = false;
  bool unique_symbols = false;         // STB_GNU_UNIQUE
  bool exports_entry = false;          // OPDOCK_ENTRY is a defined dynamic symbol
  std::vector<std::string> undefined;  // dynamic symbols wanted from elsewhere; kInspect only
  std::vector<DeviceImage> images;
  ImageTablePlace image_table;
  std::optional<Note> note;
  uint64_t note_address = 0;         // virtual, of the note's head
  std::vector<Reason> reasons;       // defects of the file and the note: truncated, overlapping, …
  std::vector<std::string> exports;  // defined dynamic symbols; kInspect only
  std::shared_ptr<const Library> library;  // NULL: no ELF file that can be read
  LinkFacts link;                          // by Linker, in the process that it is about
};

// How deep to look. kJudge reads what a verdict needs, in a few small reads; only where the note
// lists a GPU that Opdock's table has no image for does it look for other tools' fat binaries.
// kInspect looks for them in every file, and lists the symbols.
enum class Depth { kJudge, kInspect };

// Reads `fd`, a regular file of `size` bytes (OPDOCK keeps it open: the caller's). Never fails:
// whatever is wrong is in `reasons`. Thread-safe.
FileFacts read_file_facts(int fd, uint64_t size, const std::string& path, Depth depth);

}  // namespace opdock
