// Facts about an ELF file, read without executing any of its code.
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

struct SymbolVersion {  // an entry of .gnu.version_r
  std::string library;  // "libc.so.6"
  std::string version;  // "GLIBC_2.34"
  bool weak = false;
  uint16_t index = 0;                    // the index in .gnu.version of the symbols that need it
  bool hidden = false;                   // only a definition of exactly this version satisfies it
  uint32_t name_at = 0, library_at = 0;  // offsets of the texts in the string table
};

// A device image found in the file: in the plugin's image table, in an nvcc fat binary or in a HIP
// bundle. The architecture is read from the image itself if the image shows it.
struct DeviceImage {
  Backend backend;
  ImageKind kind;
  std::string arch;  // with suffix: "sm_90a", "compute_100f", "gfx90a:sramecc+:xnack-"
  Version toolkit;   // empty if neither the image nor its container names it
  bool compressed = false;
  bool from_table = false;   // whether it is in Opdock's own table, not in a fat binary
  std::string claimed_arch;  // the architecture that the container or the note states, if it
                             // differs from `arch`
  uint64_t offset = 0;       // the offset of the image's bytes in the file
  uint64_t size = 0;
};

// Location of Opdock's image table, found by its dynamic symbol. size 0: there is none.
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
  uint16_t machine = 0;   // EM_X86_64 …; 0 if the file is not ELF, or its header cannot be read
  unsigned elf_bits = 0;  // 32 or 64; 0 in the same cases
  bool big_endian = false;
  bool is_shared_object = false;
  bool is_program = false;  // a program that the kernel starts and dlopen refuses
  std::vector<std::string> needed;
  std::vector<SymbolVersion> versions;
  std::string soname, rpath, runpath;
  bool executable_stack = false;
  bool static_tls = false;
  bool unique_symbols = false;         // STB_GNU_UNIQUE
  bool exports_entry = false;          // OPDOCK_ENTRY is a defined dynamic symbol
  std::vector<std::string> undefined;  // undefined dynamic symbols; only at kInspect
  std::vector<DeviceImage> images;
  ImageTablePlace image_table;
  std::optional<Note> note;
  uint64_t note_address = 0;         // the virtual address of the note's head
  std::vector<Reason> reasons;       // defects of the file and the note: truncated, overlapping, …
  std::vector<std::string> exports;  // defined dynamic symbols; only at kInspect
  std::shared_ptr<const Library> library;  // NULL: not an ELF file that can be read
  LinkFacts link;                          // set by Linker, for one process
};

// How much to read. kJudge reads what a verdict needs, in a few small reads; it searches for other
// tools' fat binaries only if the note lists a GPU for which Opdock's table has no image. kInspect
// searches for them in every file, and lists the symbols.
enum class Depth { kJudge, kInspect };

// Reads `fd`, a regular file of `size` bytes; the caller keeps it open and closes it. Never fails:
// everything that is wrong is in `reasons`. Thread-safe.
FileFacts read_file_facts(int fd, uint64_t size, const std::string& path, Depth depth);

}  // namespace opdock
