// SPDX-License-Identifier: Apache-2.0
#include "table.h"

#include <algorithm>
#include <ostream>
#include <set>
#include <sstream>

#include "opdock/plugin.h"

namespace opdock::test {
namespace {

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

Version version(const std::string& text) {
  const std::optional<Version> parsed = Version::parse(text);
  if (!parsed) throw std::invalid_argument("no version: " + text);
  return *parsed;
}

bool take(const std::string& word, const std::string& prefix, std::string* rest) {
  if (!word.starts_with(prefix)) return false;
  *rest = word.substr(prefix.size());
  return true;
}

bool is_arch(const std::string& word) {
  return word.starts_with("sm_") || word.starts_with("compute_") || word.starts_with("gfx");
}

DeviceImage image_from(const std::string& word) {
  DeviceImage image{};
  image.backend = word.starts_with("gfx") ? Backend::kRocm : Backend::kCuda;
  image.kind = word.starts_with("gfx")   ? ImageKind::kCodeObject
               : word.starts_with("sm_") ? ImageKind::kCubin
                                         : ImageKind::kPtx;
  const size_t at = word.find('@');
  image.arch = word.substr(0, at);
  if (at != word.npos) image.toolkit = version(word.substr(at + 1));
  image.from_table = true;
  return image;
}

DeviceImage source_from(Backend backend) {
  DeviceImage image{};
  image.backend = backend;
  image.kind = ImageKind::kSource;
  image.arch = "kernel.cuh";
  return image;
}

LinkProblem& add_problem(LinkProblem::Kind kind, const std::string& name, FileFacts* file) {
  LinkProblem& problem = file->link.problems.emplace_back();
  problem.kind = kind;
  problem.name = name;
  return problem;
}

const CodeInfo& code_named(const std::string& name) {
  for (const CodeInfo& code : all_codes()) {
    if (code.name == name) return code;
  }
  throw std::invalid_argument("no code: " + name);
}

void add_word(const std::string& word, FileFacts* file, Note* note) {
  std::string rest;
  if (word == "cpu" || word == "cuda" || word == "rocm") {
    note->devices.push_back(*parse_backend(word));
  } else if (is_arch(word)) {
    file->images.push_back(image_from(word));
  } else if (word == "source") {
    file->images.push_back(source_from(Backend::kCuda));
  } else if (word == "rocm-source") {
    file->images.push_back(source_from(Backend::kRocm));
  } else if (take(word, "level=", &rest)) {
    note->cpu_level = std::stoi(rest);
  } else if (take(word, "arch=", &rest)) {
    note->cpu_arch = rest;
  } else if (take(word, "machine=", &rest)) {
    file->machine = static_cast<uint16_t>(std::stoi(rest));
  } else if (take(word, "abi=", &rest)) {
    note->head.abi_major = static_cast<uint16_t>(version(rest).major());
    note->head.abi_minor = static_cast<uint16_t>(version(rest).minor());
  } else if (word == "execstack") {
    file->executable_stack = true;
  } else if (word == "static-tls") {
    file->static_tls = true;
  } else if (word == "unique") {
    file->unique_symbols = true;
  } else if (word == "unresolved") {
    add_problem(LinkProblem::Kind::kSymbol, "cblas_sgemm", file);
  } else if (word == "not-elf") {
    file->is_elf = false;
    file->machine = 0;
  } else if (take(word, "missing=", &rest)) {
    add_problem(LinkProblem::Kind::kMissing, rest, file);
  } else if (take(word, "refused=", &rest)) {
    add_problem(LinkProblem::Kind::kRefused, rest, file).where = "/lib/" + rest;
  } else if (word == "no-open") {
    add_problem(LinkProblem::Kind::kRefused, "", file).detail = "DF_1_NOOPEN";
  } else if (take(word, "elsewhere=", &rest)) {
    add_problem(LinkProblem::Kind::kElsewhere, rest, file).where = "/lib/" + rest;
  } else if (take(word, "unknown=", &rest)) {
    add_problem(LinkProblem::Kind::kUnknown, rest, file);
  } else if (take(word, "absent:", &rest)) {
    add_problem(LinkProblem::Kind::kVersion, rest, file).library = "libx.so";
  } else if (word == "unmarked") {
    add_problem(LinkProblem::Kind::kUnmarked, "", file);
  } else if (take(word, "property=", &rest)) {
    add_problem(LinkProblem::Kind::kCpuLevel, "", file).level = std::stoi(rest);
  } else if (take(word, "symbol=", &rest)) {
    add_problem(LinkProblem::Kind::kSymbol, rest, file);
  } else if (take(word, "tls=", &rest)) {
    file->link.tls_wanted = std::stoul(rest);
  } else if (take(word, "tls-left=", &rest)) {
    file->link.tls_left = std::stol(rest);
  } else if (take(word, "tls-align=", &rest)) {
    file->link.tls_align = std::stoul(rest);
  } else if (take(word, "=", &rest)) {
    file->reasons.push_back(make_reason(code_named(rest).code, "something", "something else"));
  } else {
    const size_t end = std::min(word.find_first_of("<>=!"), word.size());
    note->libraries.push_back({word.substr(0, end), word.substr(end)});
  }
}

Gpu gpu_from(std::string word, int index) {
  Gpu gpu{};
  gpu.index = index;
  gpu.tegra = take(word, "tegra:", &word);
  gpu.arch = gpu.name = word;
  if (word.starts_with("gfx")) {
    gpu.backend = Backend::kRocm;
    return gpu;
  }
  gpu.backend = Backend::kCuda;
  const int number = std::stoi(word.substr(3));
  gpu.major = number / 10;
  gpu.minor = number % 10;
  return gpu;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Row& row) {
  return out << "line " << row.line << ": [" << row.file << "] on [" << row.machine << "] → "
             << row.wanted;
}

FileFacts file_from(const std::string& text) {
  FileFacts file;
  file.path = "plugin.so";
  file.is_elf = file.is_shared_object = file.exports_entry = true;
  file.machine = 62;
  Note note;
  note.head.abi_minor = OPDOCK_ABI_MINOR;
  note.name = "plugin";
  note.version = Version{1, 0};
  note.cpu_arch = "x86_64";
  bool has_note = true;
  for (const std::string& word : words_of(text)) {
    if (word == "no-note") {
      has_note = false;
    } else {
      add_word(word, &file, &note);
    }
  }
  if (has_note && file.is_elf) file.note = note;
  return file;
}

MachineFacts machine_from(const std::string& text) {
  MachineFacts machine;
  machine.cpu_arch = "x86_64";
  machine.cpu_level = 3;
  machine.elf_machine = 62;
  machine.cuda_problem = "no NVIDIA driver";
  machine.rocm_problem = "no AMD GPU driver";
  int cuda = 0, rocm = 0;
  for (const std::string& word : words_of(text)) {
    std::string rest;
    if (word.starts_with("sm_") || word.starts_with("tegra:")) {
      machine.gpus.push_back(gpu_from(word, cuda++));
    } else if (word.starts_with("gfx")) {
      machine.gpus.push_back(gpu_from(word, rocm++));
    } else if (take(word, "driver=", &rest)) {
      machine.cuda_driver = version(rest);
      machine.cuda_problem.clear();
    } else if (take(word, "rocm=", &rest)) {
      machine.rocm = version(rest);
      machine.rocm_problem.clear();
    } else if (word == "order?") {
      machine.gpu_order_uncertain = true;
    } else if (take(word, "level=", &rest)) {
      machine.cpu_level = std::stoi(rest);
    } else if (word == "aarch64") {
      machine.cpu_arch = word;
      machine.cpu_level = 0;
      machine.elf_machine = 183;
    } else {
      const size_t equals = word.find('=');
      if (equals == word.npos) throw std::invalid_argument("what is " + word + "?");
      machine.in_process[word.substr(0, equals)] = version(word.substr(equals + 1));
    }
  }
  return machine;
}

std::string describe(const FileFacts& file, const Verdict& verdict) {
  std::string text(to_text(verdict.state));
  for (const DeviceVerdict& device : verdict.devices) {
    if (device.image < 0) continue;
    text += " " + file.images[device.image].arch;
    break;
  }
  for (const Reason& reason : verdict.reasons) {
    EXPECT_FALSE(reason.found.empty()) << info(reason.code).name;
    EXPECT_FALSE(reason.wanted.empty()) << info(reason.code).name;
    EXPECT_FALSE(reason.advice.empty()) << info(reason.code).name;
    text += " " + std::string(info(reason.code).name);
  }
  return normalise(text);
}

std::string normalise(const std::string& wanted) {
  const std::vector<std::string> words = words_of(wanted);
  std::string text = words.at(0);
  std::set<std::string> present(words.begin() + 1, words.end());
  for (const std::string& word : words) {
    if (is_arch(word)) text += " " + word;
  }
  for (const CodeInfo& code : all_codes()) {
    if (present.erase(std::string(code.name)) != 0) text += " " + std::string(code.name);
  }
  for (const std::string& word : present) {
    if (!is_arch(word)) throw std::invalid_argument("what is " + word + "?");
  }
  return text;
}

TEST_P(VerdictTable, Row) {
  const Row& row = GetParam();
  const FileFacts file = file_from(row.file);
  const Verdict verdict = judge(file, machine_from(row.machine));
  std::string reasons;
  for (const Reason& reason : verdict.reasons) reasons += "  " + to_text(reason) + "\n";
  EXPECT_EQ(describe(file, verdict), normalise(row.wanted)) << row << "\n" << reasons;
}

}  // namespace opdock::test
