// SPDX-License-Identifier: Apache-2.0
#include "arch/cuda_list.h"

#include <fmt/format.h>

#include <algorithm>

#include "arch/list_scanner.h"
#include "facts/arch.h"

namespace opdock {
namespace {

constexpr std::string_view kPtx = "+PTX";
constexpr char kWantedCuda[] =
    "numbers such as 8.0, 9.0a, 10.0f or 12.0+PTX, PyTorch's names from Kepler to Blackwell, "
    "native, auto, all, all-major or default, separated by ';', ',' or spaces";

// PyTorch's names. Each has the meaning that torch.utils.cpp_extension of torch 2.13 gives it; a
// test compares them with the installed torch.
struct Name {
  std::string_view name, list;
};
constexpr Name kNames[] = {
    {"Kepler", "3.5+PTX"},
    {"Kepler+Tesla", "3.7"},
    {"Maxwell", "5.0;5.2+PTX"},
    {"Maxwell+Tegra", "5.3"},
    {"Pascal", "6.0;6.1+PTX"},
    {"Volta", "7.0+PTX"},
    {"Volta+Tegra", "7.2"},
    {"Turing", "7.5+PTX"},
    {"Ampere", "8.0;8.6+PTX"},
    {"Ampere+Tegra", "8.7"},
    {"Ada", "8.9+PTX"},
    {"Hopper", "9.0+PTX"},
    {"Blackwell", "10.0;10.3;12.0;12.1+PTX"},
    {"Blackwell+Tegra", "11.0"},
};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

char take_suffix(std::string_view* text) {
  if (!text->ends_with('a') && !text->ends_with('f')) return '\0';
  const char suffix = text->back();
  text->remove_suffix(1);
  return suffix;
}

// Parses "12.1" as 121: one or two digits, a point, one digit. Returns 0 for anything else.
int parse_number(std::string_view text) {
  const size_t point = text.find('.');
  if (point == text.npos || point < 1 || point > 2 || text.size() != point + 2) return 0;
  int number = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i == point) continue;
    if (!is_digit(text[i])) return 0;
    number = number * 10 + (text[i] - '0');
  }
  return number;
}

// Returns what the writer of `word` probably meant: 9.0a for "sm_90a" and "90a", Hopper for
// "hopper", 8.0+PTX for "8.0+ptx". Empty if nothing is close.
std::string guess(std::string_view word) {
  const std::string small = lower(word);
  std::string_view rest = small;
  std::string end;
  if (rest.ends_with("+ptx")) {
    rest.remove_suffix(4);
    end = kPtx;
  }
  for (const Name& name : kNames)
    if (lower(name.name) == rest) return std::string(name.name) + end;
  for (const char* item : {"native", "auto", "all", "all-major", "default"})
    if (rest == item) return item;
  if (rest == "all_major" || rest == "major") return "all-major";
  for (const std::string_view prefix : {"sm_", "compute_", "sm"}) {
    if (!rest.starts_with(prefix)) continue;
    rest.remove_prefix(prefix.size());
    break;
  }
  const char suffix = take_suffix(&rest);
  if (suffix != '\0') end.insert(0, 1, suffix);
  if (parse_number(rest) > 0) return std::string(rest) + end;
  if (rest.size() < 2 || rest.size() > 3 || !std::all_of(rest.begin(), rest.end(), is_digit))
    return {};
  return fmt::format("{}.{}{}", rest.substr(0, rest.size() - 1), rest.back(), end);
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view origin, Reason* reason)
      : scanner_(text, origin), reason_(reason) {}

  std::optional<CudaList> run() {
    std::string_view word;
    bool any = false;
    while (scanner_.next(&word)) {
      any = true;
      if (!take(word)) return std::nullopt;
    }
    if (any) return list_;
    *reason_ = scanner_.empty(kWantedCuda);
    return std::nullopt;
  }

 private:
  bool take(std::string_view word) {
    if (word == "native") return list_.native = true;
    if (word == "auto") return list_.automatic = true;
    if (word == "all") return list_.all = true;
    if (word == "all-major") return list_.all_major = true;
    if (word == "default") return list_.by_default = true;
    std::string_view rest = word;
    const bool ptx = rest.ends_with(kPtx);
    if (ptx) rest.remove_suffix(kPtx.size());
    for (const Name& name : kNames)
      if (rest == name.name) return take_name(name, ptx);
    CudaTarget target;
    target.ptx = ptx;
    const std::optional<CudaArch> named =
        rest.starts_with("sm_") ? parse_cuda_gpu(rest) : std::nullopt;
    const std::string number =
        named ? fmt::format("{}.{}", named->major, named->minor) : std::string();
    target.suffix = named ? named->suffix : take_suffix(&rest);
    if (named) rest = number;
    target.number = parse_number(rest);
    if (target.number == 0) return refuse(word);
    // CUDA C++ Programming Guide, "Feature Set Compiler Targets": architecture-specific sets exist
    // from 9.0 on, family-specific ones from 10.0 on.
    if (target.suffix == 'a' && target.number < 90) {
      return refuse_suffix(word, target.suffix, rest, "9.0");
    }
    if (target.suffix == 'f' && target.number < 100) {
      return refuse_suffix(word, target.suffix, rest, "10.0");
    }
    merge(target, &list_.targets);
    return true;
  }

  // Adds a name's targets. "Ampere+PTX" asks for PTX of the newest, which most names have anyway.
  bool take_name(const Name& name, bool ptx) {
    Reason unused{};
    std::vector<CudaTarget> targets = parse_cuda_list(name.list, name.name, &unused)->targets;
    if (ptx) targets.back().ptx = true;
    for (const CudaTarget& target : targets) merge(target, &list_.targets);
    return true;
  }

  bool refuse(std::string_view word) {
    const std::string meant = guess(word);
    *reason_ = scanner_.invalid(
        word, kWantedCuda, meant.empty() || meant == word ? "" : fmt::format("write {}", meant));
    return false;
  }

  bool refuse_suffix(std::string_view word, char suffix, std::string_view number,
                     const char* first) {
    *reason_ = scanner_.invalid(
        word, fmt::format("the suffix {} on architectures from {} on only", suffix, first),
        fmt::format("write {}", number));
    return false;
  }

  ListScanner scanner_;
  Reason* reason_;
  CudaList list_;
};

// Orders by number, then by suffix: NUL < 'a' < 'f'.
bool before(const CudaTarget& a, const CudaTarget& b) {
  return a.number != b.number ? a.number < b.number : a.suffix < b.suffix;
}

}  // namespace

std::string CudaTarget::text() const {
  std::string out = fmt::format("{}.{}", number / 10, number % 10);
  if (suffix != '\0') out += suffix;
  if (ptx) out += kPtx;
  return out;
}

std::string CudaTarget::sm() const {
  return fmt::format("sm_{}{}", number, suffix == '\0' ? "" : std::string(1, suffix));
}

std::string CudaTarget::compute() const {
  return fmt::format("compute_{}{}", number, suffix == '\0' ? "" : std::string(1, suffix));
}

void merge(const CudaTarget& target, std::vector<CudaTarget>* targets) {
  const auto at = std::lower_bound(targets->begin(), targets->end(), target, before);
  if (at != targets->end() && !before(target, *at)) {
    at->ptx |= target.ptx;
  } else {
    targets->insert(at, target);
  }
}

std::string to_text(const std::vector<CudaTarget>& targets) {
  std::string out;
  for (const CudaTarget& target : targets) out += (out.empty() ? "" : ";") + target.text();
  return out;
}

std::optional<CudaList> parse_cuda_list(std::string_view text, std::string_view origin,
                                        Reason* reason) {
  return Parser(text, origin, reason).run();
}

}  // namespace opdock
