// opdock-soft-code PLUGIN… DIR: fills a code folder of the software GPU with the sources that
// binary plugins carry beside their images, as OPDOCK_JIT_KEEP does for what is being compiled.
// Nothing of a plugin is executed. Exit status: 0 good, 1 a plugin whose images have no source.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include "call/kernels.h"
#include "jit/keep.h"
#include "jit/packed.h"
#include "note/elf_notes.h"

namespace {

using namespace opdock;

// The bytes of the plugin's image table; empty: it has none. False and reasons for what is no
// plugin.
bool read_table(int fd, uint64_t size, std::string* name, std::vector<uint8_t>* table,
                std::vector<Reason>* reasons) {
  FileReader reader(fd, size);
  Defects defects(reasons);
  ElfFile elf{&reader, &defects, {}, {}};
  bool is_elf = false;
  if (!read_headers(&elf, &is_elf)) return false;
  const std::optional<FoundNote> found = find_note(elf);
  if (!found) return false;
  const NoteHead& head = found->note.head;
  *name = found->note.name + " " + found->note.version.text();
  if (head.images_size == 0) return true;
  const uint64_t address = found->address + offsetof(NoteHead, images_offset) +
                           static_cast<uint64_t>(head.images_offset);
  const std::optional<uint64_t> offset = elf.to_offset(address, head.images_size);
  if (!offset) {
    reasons->push_back(make_reason(Code::kImageTable, "a table outside of the file", "it inside"));
    return false;
  }
  table->resize(head.images_size);
  return reader.read_exactly(*offset, table->data(), table->size());
}

// How many images are in the folder now; -1 and reasons if not all are.
int keep_all(const std::string& plugin, const std::vector<uint8_t>& table,
             const std::string& folder, std::vector<Reason>* reasons) {
  std::vector<ImageRow> rows;
  std::string problem;
  if (!read_mapped_table(table, &rows, &problem)) {
    reasons->push_back(make_reason(Code::kImageTable, problem, "a sound table"));
    return -1;
  }
  int kept = 0;
  for (const ImageRow& row : rows) {
    if (row.kind == ImageKind::kSource) continue;
    CompileRequest request;
    if (!packed_request(plugin, rows, row.backend, row.arch, &request, reasons)) return -1;
    const size_t before = reasons->size();
    keep_source(folder, request, row.kind, row.bytes, reasons);
    if (reasons->size() != before) return -1;
    ++kept;
  }
  return kept;
}

bool keep_plugin(const std::string& path, const std::string& folder) {
  std::vector<Reason> reasons;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status{};
  std::string name;
  std::vector<uint8_t> table;
  int kept = -1;
  if (fd < 0 || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    reasons.push_back(make_reason(Code::kPathUnreadable, path, "a plugin"));
  } else if (read_table(fd, static_cast<uint64_t>(status.st_size), &name, &table, &reasons)) {
    kept = keep_all(name, table, folder, &reasons);
  }
  if (fd >= 0) close(fd);
  for (const Reason& reason : reasons) {
    std::fprintf(stderr, "opdock-soft-code: %s: %s\n", path.c_str(), to_text(reason).c_str());
  }
  if (kept >= 0) std::printf("%s: %d images\n", name.c_str(), kept);
  return kept >= 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: opdock-soft-code PLUGIN... DIR\n");
    return 2;
  }
  bool good = true;
  for (int i = 1; i < argc - 1; ++i) good &= keep_plugin(argv[i], argv[argc - 1]);
  return good ? 0 : 1;
}
