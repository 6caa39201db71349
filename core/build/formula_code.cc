// SPDX-License-Identifier: Apache-2.0
#include "build/formula_code.h"

#include <dlfcn.h>
#include <sys/auxv.h>

#include <chrono>
#include <exception>
#include <memory>
#include <utility>

#include "base/files.h"
#include "base/installed.h"
#include "base/sha256.h"
#include "build/builder.h"
#include "build/limits.h"
#include "build/log.h"
#include "build/missing_files.h"
#include "build/process.h"
#include "build/tools.h"
#include "formula/cpu_source.h"
#include "opdock/simd_level.hpp"

namespace opdock {
namespace {

constexpr char kLibrary[] = "formula.so", kSource[] = "formula.cc", kLog[] = "build.log";
// The longest formula, of 4,096 operations, takes a minute.
constexpr std::chrono::seconds kTimeout(300);

// Returns the arguments that decide what the compiler makes of the source.
std::vector<std::string> arguments() {
  std::vector<std::string> all = formula::cpu_source_arguments();
  all.insert(all.end(), {"-DHWY_IS_DEBUG_BUILD=0", "-fPIC", "-shared", "-fvisibility=hidden"});
#if defined(__x86_64__)
  const std::string level = std::to_string(simd_level());
  if (level != "1") all.push_back("-march=x86-64-v" + level);
  all.push_back("-DOPDOCK_SIMD_LEVEL=v" + level);
  all.push_back("-DOPDOCK_SIMD_ONLY=v" + level);
#else
  all.insert(all.end(), {"-DOPDOCK_SIMD_LEVEL=base", "-DOPDOCK_SIMD_ONLY=base"});
#endif
  return all;
}

CacheRequest request_of(const std::string& name, const std::string& source, Cache* cache) {
  CacheRequest request;
  request.kind = "plugin";
  request.subject = "formula " + name;
  std::string words;
  for (const std::string& argument : arguments()) words += (words.empty() ? "" : " ") + argument;
  request.fields = {{"source", to_hex(sha256(source))},
                    {"arguments", words},
                    {"Opdock", OPDOCK_VERSION},
                    {"Opdock's headers", headers_digest(cache)}};
  return request;
}

// Opens the library of an entry, and holds both until the process ends.
opdock_formula_function open_code(const std::shared_ptr<CacheEntry>& entry, Cache* cache,
                                  std::vector<Reason>* reasons) {
  const std::string path = entry->folder() + "/" + kLibrary;
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const function = library == nullptr ? nullptr : dlsym(library, formula::kCodeFunction);
  if (function != nullptr) {
    new std::shared_ptr<CacheEntry>(entry);
    return reinterpret_cast<opdock_formula_function>(function);
  }
  const char* const text = dlerror();
  reasons->push_back(make_reason(Code::kBuildFailed, text != nullptr ? text : path,
                                 "compiled code of a formula that can be loaded"));
  cache->quarantine(*entry, reasons->back());
  return nullptr;
}

class Compilation {
 public:
  Compilation(const std::string& name, const std::string& source, Cache* cache, Progress* progress,
              std::vector<Reason>* reasons)
      : source_(source),
        cache_(*cache),
        progress_(progress),
        reasons_(*reasons),
        deadline_(std::chrono::steady_clock::now() + kTimeout),
        request_(request_of(name, source, cache)) {}

  opdock_formula_function run() {
    tools_ = find_compiler_tools(&reasons_);
    if (!reasons_.empty()) return nullptr;
    maker_ = identify(tools_, {}, deadline_, progress_, &reasons_);
    if (!reasons_.empty()) return nullptr;
    if (const auto made = find_made()) return open_code(made, &cache_, &reasons_);
    if (has_failed()) return nullptr;
    const std::unique_ptr<CacheLock> lock = cache_.lock(request_, maker_, progress_, &reasons_);
    if (lock == nullptr) return nullptr;
    if (const auto made = find_made()) return open_code(made, &cache_, &reasons_);
    if (has_failed()) return nullptr;
    const std::optional<std::string> folder = cache_.make_folder(&reasons_);
    if (!folder) return nullptr;
    const std::shared_ptr<CacheEntry> made = make_in(*folder);
    cache_.discard_folder(*folder);
    return made == nullptr ? nullptr : open_code(made, &cache_, &reasons_);
  }

 private:
  std::shared_ptr<CacheEntry> find_made() {
    for (const std::shared_ptr<CacheEntry>& entry : cache_.find(request_, &maker_, &reasons_))
      if (entry->maker().id == maker_.id) return entry;
    return nullptr;
  }
  bool has_failed() {
    const std::optional<std::vector<Reason>> failure = cache_.failure(request_, maker_, nullptr);
    if (!failure) return false;
    reasons_.insert(reasons_.end(), failure->begin(), failure->end());
    return true;
  }

  std::shared_ptr<CacheEntry> make_in(const std::string& folder) {
    if (const int error = write_whole(folder + "/" + kSource, source_)) {
      reasons_.push_back(
          cannot_write(folder, error, Code::kBuildNoCache, "a folder to compile in"));
      return nullptr;
    }
    ProcessJob job;
    job.arguments = tools_.cpp;
    const std::vector<std::string> given = arguments();
    job.arguments.insert(job.arguments.end(), given.begin(), given.end());
    job.arguments.insert(job.arguments.end(),
                         {"-I" + installed().include, "-o", kLibrary, kSource});
    job.environment = build_environment(tools_, folder);
    job.folder = folder;
    job.deadline = deadline_;
    job.progress = progress_;
    BuildLog log;
    job.on_output = [&](std::string_view piece) { log.add(piece); };
    const ProcessEnd end = run_process(tools_.guard, job);
    std::string text = "$";
    for (const std::string& word : job.arguments) text += " " + word;
    text += "\n" + log.text();
    if (!end.ok()) {
      fail(end, log.text(), text);
      return nullptr;
    }
    if (const int error = write_whole(folder + "/" + kLog, text)) {
      reasons_.push_back(cannot_write(folder, error, Code::kBuildNoCache, "a result that is kept"));
      return nullptr;
    }
    return cache_.publish_folder(request_, maker_, folder, {kLibrary, kSource, kLog}, &reasons_);
  }

  void fail(const ProcessEnd& end, const std::string& output, const std::string& log) {
    if (end.kind == ProcessEnd::kCancelled) {
      reasons_.push_back(make_reason(Code::kCancelled));
      return;
    }
    const std::string header = missing_header(output);
    const std::string found = tools_.cpp.back() + ", which " + end.text();
    Reason why = make_reason(Code::kBuildFailed, found, "compiled code of a formula");
    if (!header.empty()) {
      const std::string package = package_of_header(header);
      why = make_reason(Code::kBuildFailed, found + ": no header " + header,
                        package.empty() ? "the header" : package);
    }
    // Without memory or time the next process may try again.
    const bool is_lasting =
        end.kind == ProcessEnd::kExit && !hit_limit(own_limits(), end, output, found);
    if (is_lasting) cache_.remember_failure(request_, maker_, {why}, log);
    reasons_.push_back(std::move(why));
  }

  const std::string& source_;
  Cache& cache_;
  Progress* progress_;
  std::vector<Reason>& reasons_;
  const std::chrono::steady_clock::time_point deadline_;
  const CacheRequest request_;
  BuildTools tools_;
  CacheMaker maker_;
};

bool may_use(Cache* cache, std::vector<Reason>* reasons) {
  if (getauxval(AT_SECURE) != 0) {
    reasons->push_back(make_reason(Code::kBuildPrivileged));
    return false;
  }
  if (cache != nullptr && !cache->folder().empty()) return true;
  reasons->push_back(make_reason(Code::kBuildNoCache));
  return false;
}

}  // namespace

opdock_formula_function find_formula_code(const std::string& name, const std::string& source,
                                          Cache* cache, std::vector<Reason>* reasons) {
  if (!may_use(cache, reasons)) return nullptr;
  for (const std::shared_ptr<CacheEntry>& entry :
       cache->find(request_of(name, source, cache), nullptr, reasons))
    if (const opdock_formula_function found = open_code(entry, cache, reasons)) return found;
  return nullptr;
}

opdock_formula_function make_formula_code(const std::string& name, const std::string& source,
                                          Cache* cache, Progress* progress,
                                          std::vector<Reason>* reasons) {
  if (!may_use(cache, reasons)) return nullptr;
  try {
    std::vector<Reason> own;
    const opdock_formula_function made = Compilation(name, source, cache, progress, &own).run();
    reasons->insert(reasons->end(), own.begin(), own.end());
    return made;
  } catch (const std::exception& problem) {
    reasons->push_back(
        make_reason(Code::kBuildFailed, problem.what(), "compiled code of a formula"));
    return nullptr;
  }
}

}  // namespace opdock
