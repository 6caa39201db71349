// SPDX-License-Identifier: Apache-2.0
#include "inspect/reach.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "inspect/imports.h"
#include "inspect/native_names.h"

namespace opdock {
namespace {

constexpr std::string_view kInit = ".__init__";
constexpr uint64_t kMaxSource = 16 << 20;    // bytes of one file
constexpr uint64_t kMaxSources = 256 << 20;  // bytes of a package

// Returns "foo.bar" for "foo/bar", also within a longer name.
std::string module_name(std::string_view path) {
  std::string name(path);
  std::replace(name.begin(), name.end(), '/', '.');
  return name;
}

std::string_view outer_module(std::string_view module) {
  const size_t dot = module.rfind('.');
  return dot == module.npos ? std::string_view() : module.substr(0, dot);
}

// Returns the name of a file up to its first dot: "_x" for "_x.cpython-311-x86_64-linux-gnu.so".
std::string_view module_stem(std::string_view path) {
  const std::string_view name = file_name_of(path);
  return name.substr(0, name.find('.'));
}

// Returns whether the file is a library by its name, and an extension module only if a source
// imports it.
bool is_library_name(std::string_view path) {
  return file_name_of(path).starts_with("lib");
}

bool is_test(std::string_view path) {
  const std::string_view stem = module_stem(path);
  bool is_one = stem.starts_with("test") || stem.starts_with("_test") || stem.ends_with("_test") ||
                stem.ends_with("_tests") || stem.ends_with("_testing");
  for (std::string_view word : {"test/", "tests/", "testing/", "examples/", "benchmarks/"}) {
    const size_t at = path.find(word);
    is_one = is_one || (at != path.npos && (at == 0 || path[at - 1] == '/'));
  }
  return is_one;
}

class ImportWalk {
 public:
  explicit ImportWalk(const PackageTarget& target) : target_(target) {
    for (size_t i = 0; i < target.sources.size(); ++i) {
      const std::string name = place_of(target.sources[i]);
      const std::string module = module_name(name.substr(0, name.size() - 3));
      const bool is_package = module.ends_with(kInit);
      sources_[is_package ? module.substr(0, module.size() - kInit.size()) : module] = {i,
                                                                                        is_package};
    }
    for (size_t i = 0; i < target.members.size(); ++i) {
      const std::string name = place_of(target.members[i]);
      by_name_[std::string(file_name_of(name))].push_back(i);
      if (!name.ends_with(".so")) continue;
      const std::string folder(name.substr(0, name.rfind('/') + 1));
      const std::string module = module_name(folder + std::string(module_stem(name)));
      extensions_[module.ends_with(kInit) ? module.substr(0, module.size() - kInit.size())
                                          : module] = i;
    }
  }

  Reach run() {
    for (const bool is_later : {false, true}) {
      if (!reach_.files.empty()) break;
      counts_later_ = is_later;
      seen_.clear();
      for (const std::string& top : tops()) import_module(top);
      while (!queue_.empty()) {
        const std::string module = queue_.back();
        queue_.pop_back();
        visit(module);
      }
    }
    reach_.is_exact = !reach_.files.empty();
    if (reach_.files.empty()) add_all();
    return std::move(reach_);
  }

 private:
  struct Source {
    size_t index;
    bool is_package;
  };

  void add(size_t index) { reach_.files.insert(target_.members[index].path); }

  // Returns the file's path within the folder of packages, where an installer puts it.
  std::string place_of(const PackageFile& file) const {
    const std::string& site = target_.site;
    const bool is_below = file.path.starts_with(site) && file.path.size() > site.size();
    return is_below ? file.path.substr(site.size() + 1) : file.name;
  }

  // Returns what users import: modules at the top, and packages of which no parent is a package.
  std::vector<std::string> tops() const {
    std::vector<std::string> found;
    const auto consider = [&](const std::string& module, bool is_package, const std::string& path) {
      if (is_test(path)) return;
      for (std::string_view up = outer_module(module); !up.empty(); up = outer_module(up)) {
        if (sources_.count(std::string(up)) != 0) return;
      }
      if (is_package || module.find('.') == module.npos) found.push_back(module);
    };
    for (const auto& [module, source] : sources_) {
      consider(module, source.is_package, target_.sources[source.index].name);
    }
    for (const auto& [module, index] : extensions_) {
      const std::string& name = target_.members[index].name;
      const bool is_package = module_stem(name) == "__init__";
      if (!is_library_name(name)) consider(module, is_package, name);
    }
    return found;
  }

  // Imports the module and the packages that contain it.
  void import_module(const std::string& module) {
    for (size_t end = module.find('.');; end = module.find('.', end + 1)) {
      const std::string part = module.substr(0, end);
      const auto extension = extensions_.find(part);
      if (extension != extensions_.end()) add(extension->second);
      if (sources_.count(part) != 0 && seen_.insert(part).second) queue_.push_back(part);
      if (end == module.npos) return;
    }
  }

  void visit(const std::string& module) {
    const Source& source = sources_.at(module);
    const std::string text = read(target_.sources[source.index]);
    const PythonSource found = read_python(text);
    reach_.loads_libraries = reach_.loads_libraries || found.loads_libraries;
    const std::string package(source.is_package ? module : outer_module(module));
    for (const PythonImport& one : found.imports) {
      if (one.is_later && !counts_later_) continue;
      std::string base = one.module;
      if (one.level > 0) {
        std::string_view from = package;
        for (int i = 1; i < one.level; ++i) from = outer_module(from);
        base = std::string(from) + (base.empty() || from.empty() ? "" : ".") + base;
      }
      if (base.empty()) continue;
      import_module(base);
      for (const std::string& name : one.names) import_module(base + "." + name);
    }
    for (const std::string& literal : found.texts) take_text(literal, package);
  }

  // Adds a file that a source names, such as "libfoo.so", or an extension module next to the
  // source, such as "_C".
  void take_text(const std::string& text, const std::string& package) {
    const std::string name(file_name_of(text));
    const bool is_library = native_kind(name) == NativeKind::kLibrary;
    if (const auto files = by_name_.find(name); is_library && files != by_name_.end()) {
      for (const size_t index : files->second) add(index);
    }
    const std::string module = name.substr(name.rfind('.') + 1);
    const auto extension = extensions_.find(package.empty() ? module : package + "." + module);
    if (!module.empty() && extension != extensions_.end()) {
      add(extension->second);
    }
  }

  std::string read(const PackageFile& source) {
    const std::optional<OpenFile> file = target_.files->open(source.path);
    std::vector<uint8_t> bytes;
    if (!file || file->size > kMaxSource || read_ + file->size > kMaxSources ||
        read_all(file->fd.get(), kMaxSource, &bytes) != 0) {
      return "";
    }
    read_ += bytes.size();
    return {bytes.begin(), bytes.end()};
  }

  // Returns whether a module can be imported. A file in a folder without sources is only data of
  // something else.
  bool is_in_package(const std::string& module) const {
    const std::string outer(outer_module(module));
    return outer.empty() || sources_.count(outer) != 0 || extensions_.count(outer) != 0;
  }

  void add_all() {
    for (const auto& [module, index] : extensions_) {
      const std::string& name = target_.members[index].name;
      if (!is_test(name) && !is_library_name(name) && is_in_package(module)) add(index);
    }
    if (!target_.sources.empty() && !reach_.files.empty()) return;
    for (size_t i = 0; i < target_.members.size(); ++i) add(i);
  }

  const PackageTarget& target_;
  std::map<std::string, Source> sources_;     // sources, keyed by module
  std::map<std::string, size_t> extensions_;  // extension modules, keyed by module
  std::map<std::string, std::vector<size_t>> by_name_;
  std::set<std::string> seen_;
  bool counts_later_ = false;  // whether imports in functions count
  std::vector<std::string> queue_;
  uint64_t read_ = 0;  // bytes of sources read so far
  Reach reach_;
};

}  // namespace

Reach find_reach(const PackageTarget& target) {
  return ImportWalk(target).run();
}

}  // namespace opdock
