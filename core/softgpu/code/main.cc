// opdock-soft-code PLUGIN… DIR: fills a code folder of the software GPU with the sources that
// binary plugins contain next to their images, in the same form as OPDOCK_JIT_KEEP does for sources
// being compiled. Executes nothing of a plugin. Exit status: 0 on success, 1 if a plugin cannot be
// read or an image has no source, 2 on wrong usage.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "call/kernels.h"
#include "jit/keep.h"
#include "jit/plugin_source.h"
#include "note/file_facts.h"
#include "note/reader.h"

namespace {

using namespace opdock;

// Reads the bytes of the plugin's image table, which are empty if it has none. Returns false with
// reasons if the file is not a plugin.
bool read_table(int fd, uint64_t size, const std::string& path, std::string* name,
                std::vector<uint8_t>* table, std::vector<Reason>* reasons) {
  FileFacts facts = read_file_facts(fd, size, path, Depth::kJudge);
  if (!facts.note || has_code(facts.reasons, Code::kImageTable)) {
    *reasons = std::move(facts.reasons);
    return false;
  }
  *name = facts.note->name + " " + facts.note->version.text();
  table->resize(facts.image_table.size);
  FileReader reader(fd, size);
  return reader.read_exactly(facts.image_table.offset, table->data(), table->size());
}

// Returns how many images are in the folder now; -1 with reasons if one of them could not be
// stored.
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
    std::vector<std::pair<std::string, std::string>> names;
    if (!read_names(row.names, &names)) {
      reasons->push_back(make_reason(Code::kImageTable, "damaged names of kernels", "pairs"));
      return -1;
    }
    keep_source(folder, request, row.kind, row.bytes, names, reasons);
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
  } else if (read_table(fd, static_cast<uint64_t>(status.st_size), path, &name, &table, &reasons)) {
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
